"""Every address of the API: closed by default, strict, and never anything but JSON (G13, G14)."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.test import override_settings

from atp import queue
from atp.api import urls
from atp.operations.table import DOWNSTREAM, ERROR, GRAPH, INSTANCE, MATCHING, SCHEDULE, TAILER
from atp.operations.table import OPERATIONS as TABLE_OPERATIONS
from atp.states import State

from ..app.tasks_downstream import call
from .client import PROBLEM, Api, operations, problem

UUID = "00000000-0000-7000-8000-000000000000"

# What each operation needs; the test below finds what is missing here.
NEEDED = {
    "list_types": ["view_type"],
    "get_type": ["view_type"],
    "explain_type": ["view_type"],
    "purge": ["view_type", "delete_instance"],
    "list_instances": ["view_instance"],
    "enqueue": ["enqueue"],
    "get_instance": ["view_instance"],
    "delete": ["view_instance", "delete_instance"],
    "explain_instance": ["view_instance"],
    "list_log": ["view_instance", "view_logrecord"],
    "list_steps": ["view_instance", "view_step"],
    "get_inputs": ["view_instance", "view_inputs"],
    "get_response": ["view_instance", "view_response"],
    "list_files": ["view_instance", "view_response"],
    "get_file": ["view_instance", "view_response"],
    "change": ["view_instance", "operate"],
    **{
        v.id: ["view_instance", "operate"]
        for v in TABLE_OPERATIONS[INSTANCE].values()
        if v.method == "POST"
    },
    "list_tasks": ["view_task"],
    "list_gates": ["view_type"],
    "set_gate": ["view_type", "control"],
    "list_limits": ["view_type"],
    "set_limit": ["view_type", "control"],
    "list_downstreams": ["view_downstream"],
    "get_downstream": ["view_downstream"],
    **{
        f"{name}_downstream": ["view_downstream", "control"]
        for name in TABLE_OPERATIONS[DOWNSTREAM]
    },
    "list_tailers": ["view_tailer"],
    "get_tailer": ["view_tailer"],
    "list_tailer_log": ["view_tailer", "view_logrecord"],
    **{f"{name}_tailer": ["view_tailer", "control"] for name in TABLE_OPERATIONS[TAILER]},
    "list_schedules": ["view_schedule"],
    "get_schedule": ["view_schedule"],
    "list_slots": ["view_schedule"],
    **{f"{name}_schedule": ["view_schedule", "control"] for name in TABLE_OPERATIONS[SCHEDULE]},
    **{f"{name}_schedule": ["view_schedule", "operate"] for name in ("run", "backfill")},
    **{
        f"{name}_schedule": ["view_schedule", "control", "enqueue"] for name in ("create", "change")
    },
    "list_graphs": ["view_graph"],
    "get_graph": ["view_graph"],
    "list_nodes": ["view_graph"],
    "draw_graph": ["view_graph"],
    **{f"{name}_graph": ["view_graph", "operate"] for name in TABLE_OPERATIONS[GRAPH]},
    "list_errors": ["view_errorgroup"],
    "get_error": ["view_errorgroup"],
    **{f"{name}_error": ["view_errorgroup", "operate"] for name in TABLE_OPERATIONS[ERROR]},
    "delete_error": ["view_errorgroup", "delete_instance"],
    **{f"{name}_matching": ["view_instance", "operate"] for name in TABLE_OPERATIONS[MATCHING]},
    "delete_matching": ["view_instance", "delete_instance"],
    "list_daemons": ["view_daemon"],
    "get_daemon": ["view_daemon"],
    "quiet_daemon": ["view_daemon", "control"],
    "resume_daemon": ["view_daemon", "control"],
    "stop_daemon": ["view_daemon", "control"],
    "get_pending": ["view_daemon", "operate"],
}
OPEN = {"get_health", "get_liveness"}
OPERATIONS = {operation["operationId"]: (path, method) for path, method, operation in operations()}
CLOSED = sorted(OPERATIONS.keys() - OPEN)


def address(name, full):
    """Return method and path of an operation, with names of what there is."""
    path, method = OPERATIONS[name]
    if name == "resume_daemon":
        queue.command(full.host.uuid, "quiet")
    if name == "run_now":
        queue.change(full[State.ACCEPTED], postpone=timedelta(hours=1))
    instance = {
        "change": State.ACCEPTED,
        "redrive": State.FAILED,
        "release": State.RUNNING,
        "pause": State.RUNNING,
        "resume": State.PAUSED,
        "run_now": State.ACCEPTED,
        "cancel": State.RUNNING,
    }.get(name, State.FINISHED)
    uuid = full.host.uuid if "/daemons/" in path else full[instance].uuid
    if "/graphs/" in path:
        uuid = full.graph().uuid
    identifier = "tests.echo"
    if "/schedules/" in path:
        identifier = "of-the-code" if name == "leave_schedule" else "of-the-tests"
        _schedule(name, identifier)
    if "/tailers/" in path:
        identifier = full.tailer().identifier
    if "/downstreams/" in path:
        queue.register(call)
    of_name = full.error().name if "/errors/" in path else "relay"
    return method, path.format(uuid=uuid, identifier=identifier, name=of_name, number=0)


def _schedule(name, identifier):
    """Have a schedule on which the operation makes a difference."""
    known = [row.identifier for row in queue.schedules()]
    if identifier not in known:
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
        **{f"{name}_matching": b'{"type": "tests.echo"}' for name in TABLE_OPERATIONS[MATCHING]},
        "set_limit": b'{"type": "tests.echo", "max_running": 1}',
    }.get(name, b"")


def test_every_route_is_an_operation_and_every_operation_is_in_the_table():
    routes = {route.name for route in urls.urlpatterns} - {"unknown"}
    assert len(routes) == len({path for path, _ in OPERATIONS.values()})
    assert {*NEEDED, *OPEN} == OPERATIONS.keys()


@pytest.fixture
def everything(full):
    """A queue in which each list has something."""
    full.tailer()
    full.graph()
    full.downstream()
    full.error()
    queue.hold("tests.add", reason="maintenance")
    queue.limit("tests.echo", max_running=300)
    assert queue.schedules()
    return full


def test_each_list_has_what_its_schema_says(everything, api):
    """The client compares each answer with the document."""
    for name, (path, method) in OPERATIONS.items():
        if method == "GET" and "{" not in path:
            answer = api.get(path)
            assert answer.status_code == 200 or name in OPEN, name
            assert not name.startswith("list_") or answer.json()["results"], name


def test_each_list_with_pages_is_whole_page_by_page(everything, api):
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
    """Yield each operation with its method, its path and its body; see that it writes nothing."""
    for name in names:
        with transaction.atomic():
            method, path = address(name, full)
            before = full.world.snapshot()
            yield name, (method, path, body_of(name))
            assert full.world.snapshot() == before, name
            transaction.set_rollback(True)


def test_nothing_without_a_login(full):
    """G14."""
    for name, asked in each(CLOSED, full):
        answer = Api().call(*asked)
        assert (answer.status_code, problem(answer)) == (401, "not-authenticated"), name
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="api"', name


def test_each_permission_is_needed_and_no_other(full, user_with, media):
    """G14: what is lacking is named, and nothing is written."""
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
            assert (answer.status_code, problem(answer)) == (403, "permission-denied"), name
            told = re.findall(r"atp\.(\w+)", answer.json()["detail"])
            assert set(told) == set(lacking), name
        user.user_permissions.set(codes[each] for each in needed)
        for file in files:  # no transaction brings back what a delete has removed
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"file")
        with transaction.atomic():
            assert api.call(*asked).status_code in (200, 201, 202), name
            transaction.set_rollback(True)


def test_unknown_parameters_are_refused(full, api):
    """G13: what is ignored would look like an answer to what was asked."""
    for name, (method, path, body) in each(sorted(OPERATIONS), full):
        answer = api.call(method, f"{path}?waite=3&limti=1", body)
        assert (answer.status_code, problem(answer)) == (400, "invalid-parameter"), name
        assert "'waite'" in answer.json()["detail"], name


def test_other_methods_are_refused(full, api):
    of_path = {path: name for name, (path, _) in OPERATIONS.items()}
    for at, name in of_path.items():
        _, path = address(name, full)
        allowed = {method for other, method in OPERATIONS.values() if other == at}
        for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "POST"} - allowed:
            answer = api.call(method, path)
            assert (answer.status_code, problem(answer)) == (405, "method-not-allowed"), path
            assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == allowed, path


ANY_BODY = {"get_response", "get_file", "draw_graph"}


def test_reading_gives_json_alone_and_head_is_get_without_a_body(full, api):
    for name, (method, path, body) in each(sorted(OPERATIONS), full):
        answer = api.call(method, path, body, accept="text/html")
        if name in ANY_BODY:
            assert answer.status_code != 406, name
        else:
            assert (answer.status_code, problem(answer)) == (406, "not-acceptable"), name
        if method == "GET" and name in CLOSED:
            got, head = api.get(path), api.call("HEAD", path)
            assert head.status_code == got.status_code, name
            assert head.headers["Content-Type"] == got.headers["Content-Type"], name


def test_unknown_addresses(api):
    """They lead to known ones; and need a login, too (G14)."""
    assert Api().get("nothing").status_code == 401
    of_verb = f"instances/{UUID}/redriv"
    for path in ("", "instance", "types/", "instances/a/b", of_verb, "%00", "é"):
        for method in ("GET", "OPTIONS"):
            answer = api.call(method, path)
            assert (answer.status_code, problem(answer)) == (404, "not-found"), path
    assert "Did you mean 'instances'?" in api.get("instance").json()["detail"]
    told = api.get("").json()["detail"]
    assert "begin with daemons, downstreams, errors, gates, graphs, health, instances" in told


def test_settings_of_rest_framework_do_not_matter(full, api):
    """Settings are read when views are declared, but for a few."""
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


def test_more_parameters_than_django_reads(api):
    answer = api.get("types?" + "&".join(f"a{n}=1" for n in range(1001)))
    assert (answer.status_code, problem(answer)) == (400, "bad-request")


def test_a_fault_of_ours_tells_nothing(api, monkeypatch, caplog):
    """G14: no traceback leaves the site, and none is lost."""
    monkeypatch.setattr("atp.api.resources.documents.types", lambda: 1 / 0)
    api.client.raise_request_exception = False
    answer = api.client.get("/atp/api/types")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, PROBLEM)
    # By default Django sends these records to ADMINS alone, and there may be none.
    assert "if the project logs django.request" in answer.json()["detail"]
    assert "ZeroDivisionError" in caplog.text
