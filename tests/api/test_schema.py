"""The OpenAPI document is valid and describes the JSON documents correctly."""

import pytest
from django.core.management import call_command
from drf_spectacular.settings import patched_settings

from atp.operations.table import INSTANCE, OPERATIONS

from .client import openapi, operations


@pytest.mark.slow
def test_the_openapi_document_validates_without_a_warning(tmp_path):
    for version in ("3.0.3", "3.1.0"):
        with patched_settings({"OAS_VERSION": version}):
            target = str(tmp_path / "openapi.yaml")
            call_command("spectacular", "--validate", "--fail-on-warn", "--file", target)


def test_operations_have_the_request_body_that_their_parameters_describe():
    """Operations without parameters have no request body."""
    bodies = {
        (operation["operationId"], method): operation.get("requestBody")
        for _, method, operation in operations()
    }
    for verb in OPERATIONS[INSTANCE].values():
        body = bodies[verb.id, verb.method]
        assert bool(body) == bool(verb.parameters), verb.name
        if body:
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            told = openapi()["components"]["schemas"][name]
            assert told["additionalProperties"] is False
            for parameter in verb.parameters:
                own = told["properties"][parameter.json_name]
                assert own.items() >= parameter.kind.schema.items()
                assert own["description"] == parameter.help
