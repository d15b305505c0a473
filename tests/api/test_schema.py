"""The OpenAPI document: it validates, and says of documents what they are."""

import pytest
from django.core.management import call_command
from drf_spectacular.settings import patched_settings

from atp.api import health, resources, scopes, serializers
from atp.api.urls import urlpatterns
from atp.reports import documents
from atp.states import State
from atp.verbs.table import INSTANCE, VERBS

from .client import openapi, operations

# Keys of an Instance that it has while it is queued, and where it is enqueued.
QUEUED, ARRIVED = {"due_at", "daemon"}, {"is_new", "inputs_differ"}
HOOKS = {"hooks", "hook_of"}


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_it_validates_without_a_warning(version, tmp_path):
    with patched_settings({"OAS_VERSION": version}):
        target = str(tmp_path / "openapi.yaml")
        call_command("spectacular", "--validate", "--fail-on-warn", "--file", target)


@pytest.mark.parametrize(
    ("serializer", "fields", "more"),
    [
        (
            resources.TypeSerializer,
            documents.TYPE_FIELDS,
            {"late_writes", "registered", "declared", "on_finished", "on_failed", "sensitive"}
            | {"inputs_schema", "outputs_schema"},
        ),
        (
            serializers.InstanceSerializer,
            documents.INSTANCE_FIELDS,
            {"actions", "url", "waits_for", "error", "graph", *HOOKS, *QUEUED, *ARRIVED},
        ),
        (serializers.LogRecordSerializer, documents.LOG_FIELDS, set()),
        (serializers.TaskSerializer, documents.TASK_FIELDS, {"instance", "type", "daemon"}),
        (serializers.DaemonSerializer, documents.DAEMON_FIELDS, {"condition"}),
        (scopes.GateSerializer, documents.GATE_FIELDS, {"type"}),
        (scopes.LimitSerializer, documents.LIMIT_FIELDS, {"type"}),
        (serializers.WorkerSerializer, documents.WORKER_FIELDS, set()),
    ],
)
def test_serializers_have_the_keys_of_the_documents(serializer, fields, more):
    assert serializer().fields.keys() == {*fields} | more


def test_documents_have_these_keys_indeed(full, api):
    """What the fields say is what comes; their kinds the client compares each time."""
    pairs = [
        ("types/tests.echo", resources.TypeSerializer),
        (f"instances/{full[State.FAILED].uuid}", serializers.InstanceSerializer),
        (f"instances/{full[State.FAILED].uuid}/inputs", serializers.InputsSerializer),
        (f"daemons/{full.host.uuid}", serializers.DaemonSerializer),
        ("health", health.HealthSerializer),
        ("health/live", health.LivenessSerializer),
    ]
    for path, serializer in pairs:
        assert api.get(path).json().keys() == serializer().fields.keys() - ARRIVED
    pairs = [
        ("tasks", serializers.TaskSerializer),
        (f"instances/{full[State.FAILED].uuid}/log", serializers.LogRecordSerializer),
        (f"instances/{full[State.FINISHED].uuid}/files", serializers.FileSerializer),
    ]
    for path, serializer in pairs:
        [first, *_] = api.get(path).json()["results"]
        assert first.keys() == serializer().fields.keys()


@pytest.mark.parametrize("verb", VERBS[INSTANCE].values(), ids=lambda verb: verb.name)
def test_a_verb_has_the_body_that_its_parameters_say(verb):
    """And none if it has none."""
    [body] = [
        operation.get("requestBody")
        for _, method, operation in operations()
        if (operation["operationId"], method) == (verb.id, verb.method)
    ]
    assert bool(body) == bool(verb.parameters)
    if body:
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        told = openapi()["components"]["schemas"][name]
        assert told["additionalProperties"] is False
        for parameter in verb.parameters:
            own = told["properties"][parameter.json_name]
            assert own.items() >= parameter.kind.schema.items()
            assert own["description"] == parameter.help


def test_every_method_is_an_operation():
    for route in urlpatterns:
        for name in getattr(route.callback, "actions", {}).values():
            assert getattr(route.callback.cls, name).needs, (route.name, name)


def test_operations_are_named_and_told():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for path, _, operation in operations():
        assert operation["summary"]
        for answer in operation["responses"].values():
            assert answer["description"]
        assert f"/atp/api/{operation['tags'][0]}" in path


@pytest.mark.parametrize("status", ["400", "401", "403", "406", "429", "503"])
def test_every_operation_tells_how_it_may_fail(status):
    for path, _, operation in operations():
        content = operation["responses"][status]["content"]
        assert "application/problem+json" in content or "/health" in path


def test_only_probes_need_no_login():
    open_to_all = [path for path, _, operation in operations() if {} in operation["security"]]
    assert open_to_all == ["/atp/api/health", "/atp/api/health/live"]


def test_the_body_is_strict():
    body = openapi()["components"]["schemas"]["Enqueue"]
    assert body["additionalProperties"] is False
    assert body["required"] == ["type"]
