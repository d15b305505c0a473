"""The OpenAPI document: it validates, and says of documents what they are."""

from django.core.management import call_command
from drf_spectacular.settings import patched_settings

from atp import queue
from atp.api import health, resources, serializers
from atp.operations.table import INSTANCE, OPERATIONS
from atp.states import State
from atp.tailers import api as tailers

from .client import openapi, operations


def test_it_validates_without_a_warning(tmp_path):
    for version in ("3.0.3", "3.1.0"):
        with patched_settings({"OAS_VERSION": version}):
            target = str(tmp_path / "openapi.yaml")
            call_command("spectacular", "--validate", "--fail-on-warn", "--file", target)


def test_serializers_have_the_keys_of_the_documents(full, api):
    """What the fields say is what comes; their kinds the client compares each time."""
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


def test_a_verb_has_the_body_that_its_parameters_say():
    """And none if it has none."""
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


def test_operations_are_named_and_told():
    """Also how each may fail; only probes need no login."""
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for path, _, operation in operations():
        assert operation["summary"]
        for answer in operation["responses"].values():
            assert answer["description"]
        assert f"/atp/api/{operation['tags'][0]}" in path
        for status in ("400", "401", "403", "406", "429", "503"):
            content = operation["responses"][status]["content"]
            assert "application/problem+json" in content or "/health" in path
    open_to_all = [path for path, _, operation in operations() if {} in operation["security"]]
    assert open_to_all == ["/atp/api/health", "/atp/api/health/live"]
