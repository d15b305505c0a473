"""The OpenAPI document is valid and describes the JSON documents correctly."""

import pytest
from django.core.management import call_command
from drf_spectacular.settings import patched_settings

from atp import queue
from atp.api import health, resources, serializers
from atp.operations.table import INSTANCE, OPERATIONS
from atp.states import State
from atp.tailers import api as tailers

from .client import openapi, operations


@pytest.mark.slow
def test_the_openapi_document_validates_without_a_warning(tmp_path):
    for version in ("3.0.3", "3.1.0"):
        with patched_settings({"OAS_VERSION": version}):
            target = str(tmp_path / "openapi.yaml")
            call_command("spectacular", "--validate", "--fail-on-warn", "--file", target)


def test_serializers_have_the_keys_of_the_documents(full, api):
    """The test client compares the types of the fields with each response."""
    full.tailer()
    queue.hold("tests.add")
    queue.limit("tests.echo", max_running=300)
    failed, finished = (f"instances/{full[s].uuid}" for s in (State.FAILED, State.FINISHED))
    # Keys of an Instance that it has where it is enqueued.
    arrived = {"is_new", "inputs_differ"}
    for path, serializer in (
        ("types/tests.echo", resources.TypeSerializer),
        (failed, serializers.InstanceSerializer),
        (f"{failed}/inputs", serializers.InputsSerializer),
        (f"daemons/{full.host.uuid}", serializers.DaemonSerializer),
        ("tailers", tailers.TailerSerializer),
        ("tailers/tests.tailer", tailers.TailerWithCursorsSerializer),
        ("health", health.HealthSerializer),
        ("health/live", health.LivenessSerializer),
        ("tasks", serializers.TaskSerializer),
        ("gates", resources.GateSerializer),
        ("limits", resources.LimitSerializer),
        (f"{failed}/log", serializers.LogRecordSerializer),
        (f"{finished}/files", serializers.FileSerializer),
    ):
        found = api.get(path).json()
        [first, *_] = found.get("results", [found])
        assert first.keys() == serializer().fields.keys() - arrived, path


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
