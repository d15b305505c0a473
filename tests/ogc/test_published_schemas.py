"""Each document of the service against the schemas that the standard publishes.

They are not part of this project: ATP_OGC_SCHEMAS names the folder ``core/openapi/schemas`` of the
branch ``1.0.0-maintenance`` of the repository opengeospatial/ogcapi-processes.
"""

import os
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft4Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

FOLDER = os.environ.get("ATP_OGC_SCHEMAS")

pytestmark = pytest.mark.skipif(
    not FOLDER, reason="ATP_OGC_SCHEMAS does not name a folder with the published schemas"
)


def is_valid(document, name):
    """Return True; raise ValidationError if a document does not fit the schema in a file."""

    def read(uri):
        file = uri.rpartition("/")[2]
        schema = yaml.safe_load(Path(FOLDER, file).read_text())
        if file == "inputValueNoObject.yaml":
            # Each string and each integer fits two of its kinds, so that oneOf refuses them all.
            # The draft of version 2.0 has anyOf there.
            schema["anyOf"] = schema.pop("oneOf")
        return Resource(contents=schema, specification=DRAFT4)

    registry = Registry(retrieve=read)
    validator = Draft4Validator({"$ref": f"http://schemas/{name}.yaml"}, registry=registry)
    validator.validate(document)
    return True


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("", "landingPage"),
        ("conformance", "confClasses"),
        ("processes", "processList"),
        ("processes/ogc.relief", "process"),
        ("processes/ogc.echo", "process"),
        ("processes/unknown", "exception"),
        ("jobs/unknown", "exception"),
        ("jobs?limit=x", "exception"),
    ],
)
def test_document(ogc, types, path, schema):
    assert is_valid(ogc.get(path).json(), schema)


@pytest.mark.parametrize("status", ["accepted", "dismissed", "successful", "failed"])
def test_job(ogc, types, atp, status):
    body = {"inputs": {"fail": status == "failed"}}
    created = ogc.execute("ogc.echo", body, Prefer="respond-async")
    assert is_valid(created.json(), "statusInfo")
    job = created.headers["Location"]
    if status == "dismissed":
        assert is_valid(ogc.delete(job).json(), "statusInfo")
    elif status != "accepted":
        atp.drain(raises=False)
    found = ogc.get(job).json()
    assert found["status"] == status
    assert is_valid(found, "statusInfo")
    assert is_valid(ogc.get("jobs").json(), "jobList")
    results = ogc.get(f"{job}/results").json()
    assert is_valid(results, "results" if status == "successful" else "exception")


def test_results_and_refusals_of_an_execution(ogc, job, atp):
    atp.drain()
    assert is_valid(ogc.get(f"{job}/results").json(), "results")
    refused = ogc.execute("ogc.relief", {"inputs": {"bbox": [1]}})
    assert refused.status_code == 400
    assert is_valid(refused.json(), "exception")
