"""Each route of the API needs a login, rejects unknown parameters and returns JSON (G13, G14)."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.test import override_settings

from atp import queue
from atp.api import urls
from atp.operations import table
from atp.states import State

from ..app.tasks_downstream import call
from .client import PROBLEM, Api, operations, refusal

UUID = "00000000-0000-7000-8000-000000000000"


def acting(kind, view, suffix=""):
    """Return what each operation of the table needs; tests/test_roles.py lists it once more."""
    needs = {verb.id: verb.needs for verb in table.OPERATIONS[kind].values()}
    return {
        f"{name}{suffix}": [view, *(code.removeprefix("atp.") for code in codes)]
        for name, codes in needs.items()
    }


# Those that read need only the permission to see what they read.
READING = {
    "view_type": ("list_types", "get_type", "explain_type", "list_gates", "list_limits"),
    "view_instance": ("list_instances", "get_instance", "explain_instance", "get_problems"),
    "view_task": ("list_tasks",),
    "view_downstream": ("list_downstreams", "get_downstream"),
    "view_tailer": ("list_tailers", "get_tailer"),
    "view_schedule": ("list_schedules", "get_schedule", "list_slots"),
    "view_graph": ("list_graphs", "get_graph", "list_nodes", "draw_graph"),
    "view_errorgroup": ("list_errors", "get_error"),
    "view_daemon": ("list_daemons", "get_daemon"),
}
# What each operation needs; the test below finds what is missing here.
NEEDED = {
    **{name: [permission] for permission, names in READING.items() for name in names},
    "purge": ["view_type", "delete_instance"],
    "enqueue": ["enqueue"],
    "list_log": ["view_instance", "view_logrecord"],
    "list_steps": ["view_instance", "view_step"],
    "get_inputs": ["view_instance", "view_inputs"],
    "get_response": ["view_instance", "view_response"],
    "list_files": ["view_instance", "view_response"],
    "get_file": ["view_instance", "view_response"],
    **acting(table.INSTANCE, "view_instance"),
    **acting(table.MATCHING, "view_instance", "_matching"),
    "set_gate": ["view_type", "control"],
    "set_limit": ["view_type", "control"],
    **acting(table.DOWNSTREAM, "view_downstream", "_downstream"),
    "list_tailer_log": ["view_tailer", "view_logrecord"],
    **acting(table.TAILER, "view_tailer", "_tailer"),
    "create_schedule": ["view_schedule", "control", "enqueue"],
    **acting(table.SCHEDULE, "view_schedule", "_schedule"),
    **acting(table.GRAPH, "view_graph", "_graph"),
    **acting(table.ERROR, "view_errorgroup", "_error"),
    **acting(table.DAEMON, "view_daemon", "_daemon"),
    "get_pending": ["view_daemon", "operate"],
}
OPEN = {"get_health", "get_liveness"}
OPERATIONS = {operation["operationId"]: (path, method) for path, method, operation in operations()}
CLOSED = sorted(OPERATIONS.keys() - OPEN)


def address(name, full):
    """Return the method and the path of an operation, with identifiers that exist."""
    path, method = OPERATIONS[name]
    if name == "resume_daemon":
        queue.command(full.host.uuid, "quiet")
    if name == "run_now":
        queue.change(full[State.ACCEPTED], postpone=timedelta(hours=1))
    instance = {
        **dict.fromkeys(("change", "run_now"), State.ACCEPTED),
        **dict.fromkeys(("release", "pause", "stack", "cancel"), State.RUNNING),
        "redrive": State.FAILED,
        "resume": State.PAUSED,
    }.get(name, State.FINISHED)
    uuid = full.host.uuid if "/daemons/" in path else full[instance].uuid
    if "/graphs/" in path:
        uuid = full.graph().uuid
    identifier = "tests.echo"
    if "/schedules/" in path:
        identifier = "of-the-code" if name == "leave_schedule" else "of-the-tests"
        make_schedule(name, identifier)
    if "/tailers/" in path:
        identifier = full.tailer().identifier
    if "/downstreams/" in path:
        queue.register(call)
    of_name = full.error().name if "/errors/" in path else "relay"
    return method, path.format(uuid=uuid, identifier=identifier, name=of_name, number=0)


def make_schedule(name, identifier):
    """Create a schedule on which the operation changes something."""
    if identifier not in [row.identifier for row in queue.schedules()]:
        queue.create_schedule(identifier, "tests.echo", every=3600)
    if name == "resume_schedule":
        queue.pause_schedule(identifier)
    if name == "leave_schedule":
        queue.change_schedule(identifier, jitter=5)


def body_of(name):
    return {
        "enqueue": b'{"type": "tests.echo"}',
        "change": b'{"priority": 3}',
        "set_gate": b'{"type": "tests.echo", "mode": "hold"}',
        "create_schedule": b'{"identifier": "new", "type": "tests.echo", "every": 60}',
        "change_schedule": b'{"jitter": 7}',
        "backfill_schedule": b'{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T03:00:00Z"}',
        "bound_downstream": b'{"ceiling": 5}',
        "seek_tailer": b'{"shard": "a", "position": "5"}',
        "forget_tailer": b'{"shard": "a"}',
        **dict.fromkeys(acting(table.MATCHING, "", "_matching"), b'{"type": "tests.echo"}'),
        "set_limit": b'{"type": "tests.echo", "max_running": 1}',
    }.get(name, b"")


def test_every_route_is_a_documented_operation_with_known_permissions():
    routes = {route.name for route in urls.urlpatterns} - {"unknown"}
    assert len(routes) == len({path for path, _ in OPERATIONS.values()})
    assert {*NEEDED, *OPEN} == OPERATIONS.keys()


@pytest.fixture
def everything(full):
    """A queue in which no list of the API is empty."""
    full.tailer()
    full.graph()
    full.downstream()
    full.error()
    queue.hold("tests.add", reason="maintenance")
    queue.limit("tests.echo", max_running=300)
    assert queue.schedules()
    return full


@pytest.mark.slow
def test_each_list_matches_its_schema_and_returns_every_row_page_by_page(everything, api):
    for name, (path, method) in OPERATIONS.items():
        if method == "GET" and "{" not in path:
            answer = api.get(path)
            assert answer.status_code == 200 or name in OPEN, name
            assert not name.startswith("list_") or answer.json()["results"], name
    schemas = {operation["operationId"]: operation for _, _, operation in operations()}
    paged = [
        name
        for name in CLOSED
        if {"page", "limit"} <= {each["name"] for each in schemas[name].get("parameters", ())}
    ]
    assert {"list_instances", "list_graphs", "list_nodes", "list_log", "list_steps"} <= {*paged}
    for name in paged:
        _, path = address(name, everything)
        seen, url = [], f"{path}?limit=1"
        while url:
            page = api.get(url).json()
            seen += page["results"]
            url = page["next"]
        assert seen, name
        assert seen == api.get(path).json()["results"], name


def each(names, full):
    """Yield each operation with its method, path and body, and check that it writes nothing."""
    for name in names:
        with transaction.atomic():
            method, path = address(name, full)
            before = full.world.snapshot()
            yield name, (method, path, body_of(name))
            assert full.world.snapshot() == before, name
            transaction.set_rollback(True)


@pytest.mark.slow
def test_every_operation_requires_a_login(full):
    """The response offers basic authentication (G14)."""
    for name, asked in each(CLOSED, full):
        answer = Api().call(*asked)
        assert refusal(answer) == (401, "not-authenticated"), name
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="api"', name


@pytest.mark.slow
def test_each_operation_requires_exactly_its_permissions(full, user_with, media):
    """The problem names the missing permissions, and nothing is written (G14)."""
    files = [media / file["path"] for file in full[State.FINISHED].response.files]
    user = user_with()
    api = Api(user)
    own = Permission.objects.filter(content_type__app_label="atp")
    codes = dict(own.values_list("codename", "pk"))
    for name, asked in each(CLOSED, full):
        needed = NEEDED[name]
        for lacking in (needed, *([codename] for codename in needed)):
            user.user_permissions.set(codes[each] for each in needed if each not in lacking)
            answer = api.call(*asked)
            assert refusal(answer) == (403, "permission-denied"), name
            told = re.findall(r"atp\.(\w+)", answer.json()["detail"])
            assert set(told) == set(lacking), name
        user.user_permissions.set(codes[each] for each in needed)
        for file in files:  # no transaction brings back what a delete has removed
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"file")
        with transaction.atomic():
            assert api.call(*asked).status_code in (200, 201, 202), name
            transaction.set_rollback(True)


@pytest.mark.slow
def test_unknown_query_parameters_are_rejected(full, api):
    """Ignoring a misspelt parameter would return a wrong result without an error (G13)."""
    for name, (method, path, body) in each(sorted(OPERATIONS), full):
        answer = api.call(method, f"{path}?waite=3&limti=1", body)
        assert refusal(answer) == (400, "invalid-parameter"), name
        assert "'waite'" in answer.json()["detail"], name
    too_many = "&".join(f"a{n}=1" for n in range(1001))
    assert refusal(api.get(f"types?{too_many}")) == (400, "bad-request")


@pytest.mark.slow
def test_undocumented_methods_return_405(full, api):
    of_path = {path: name for name, (path, _) in OPERATIONS.items()}
    for at, name in of_path.items():
        _, path = address(name, full)
        allowed = {method for other, method in OPERATIONS.values() if other == at}
        for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "POST"} - allowed:
            answer = api.call(method, path)
            assert refusal(answer) == (405, "method-not-allowed"), path
            assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == allowed, path


ANY_BODY = {"get_response", "get_file", "draw_graph"}


@pytest.mark.slow
def test_an_operation_that_returns_json_refuses_html_and_answers_head_like_get(full, api):
    for name, (method, path, body) in each(sorted(OPERATIONS), full):
        answer = api.call(method, path, body, accept="text/html")
        if name in ANY_BODY:
            assert answer.status_code != 406, name
        else:
            assert refusal(answer) == (406, "not-acceptable"), name
        if method == "GET" and name in CLOSED:
            got, head = api.get(path), api.call("HEAD", path)
            assert head.status_code == got.status_code, name
            assert head.headers["Content-Type"] == got.headers["Content-Type"], name


def test_unknown_addresses_return_404_after_a_login(api):
    """The problem suggests known addresses. Without a login the status is 401 (G14)."""
    assert Api().get("nothing").status_code == 401
    of_verb = f"instances/{UUID}/redriv"
    for path in ("", "instance", "types/", "instances/a/b", of_verb, "%00", "é"):
        for method in ("GET", "OPTIONS"):
            assert refusal(api.call(method, path)) == (404, "not-found"), path
    assert "Did you mean 'instances'?" in api.get("instance").json()["detail"]
    told = api.get("").json()["detail"]
    assert "begin with daemons, downstreams, errors, gates, graphs, health, instances" in told


def test_settings_of_rest_framework_do_not_affect_the_api(full, api):
    """Most settings are read when views are declared; these are read for each request."""
    with override_settings(
        REST_FRAMEWORK={
            "EXCEPTION_HANDLER": "nowhere.at.all",
            "URL_FORMAT_OVERRIDE": "page",
            "FORMAT_SUFFIX_KWARG": "uuid",
            "UNAUTHENTICATED_USER": None,
        }
    ):
        answer = api.get(f"instances/{full[State.FAILED].uuid}")
        assert answer.status_code == 200
        assert api.get("instances?limit=1").json()["next"]
        assert Api().get("types").status_code == 401


def test_a_server_error_hides_its_traceback_and_logs_it(api, monkeypatch, caplog):
    monkeypatch.setattr("atp.api.resources.documents.types", lambda: 1 / 0)
    api.client.raise_request_exception = False
    answer = api.client.get("/atp/api/types")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, PROBLEM)
    # By default Django sends these records to ADMINS alone, and there may be none.
    assert "if the project logs django.request" in answer.json()["detail"]
    assert "ZeroDivisionError" in caplog.text
