"""Operations over HTTP: on Instances, gates, limits, daemons and schedules."""

from datetime import timedelta

import pytest
from django.db import transaction

from atp import queue
from atp.commands import DaemonCommand
from atp.models import Instance, Limit, LogRecord, Schedule, Task
from atp.operations.table import GRAPH, INSTANCE, OPERATIONS, allowed_operations
from atp.states import CLAIMED, State

from .client import Api, fields, refusal

WHO = "user operator via API"
POSTED = [name for name, verb in OPERATIONS[INSTANCE].items() if verb.method == "POST"]


@pytest.mark.slow
def test_actions_are_accepted_exactly_when_the_instance_lists_them(full, api):
    """An action that the Instance does not list returns 409 and writes nothing (G6)."""
    calls = {name: ("POST", f"/{name}", b"") for name in POSTED}
    calls["change"] = ("PATCH", "", b'{"priority": 3}')
    for state in State:
        instance = full[state]
        path, before = f"instances/{instance.uuid}", full.world.snapshot()
        possible = [verb.name for verb in allowed_operations(instance, queue.task(instance))]
        for name, (method, below, body) in calls.items():
            with transaction.atomic():
                answer = api.call(method, path + below, body)
                if name in possible:
                    assert answer.status_code == 200, (state, name)
                    assert answer.json() == api.get(path).json(), (state, name)
                    assert full[state].log.last().who == WHO, (state, name)
                else:
                    assert refusal(answer) == (409, "illegal-transition")
                    assert f"it is {state}" in answer.json()["detail"], (state, name)
                    assert full.world.snapshot() == before, (state, name)
                transaction.set_rollback(True)


def test_a_pending_command_removes_its_action_from_the_instance(full, api):
    address = f"instances/{full[State.RUNNING].uuid}"
    for name, actions in (
        ("pause", {"resume", "release", "stack", "cancel"}),
        ("resume", {"pause", "release", "stack", "cancel"}),
        ("stack", {"pause", "release", "cancel"}),
        ("cancel", set()),
    ):
        found = api.post(f"{address}/{name}").json()
        assert (found["state"], set(found["actions"])) == ("RUNNING", actions), name


@pytest.mark.slow
def test_an_unclaimed_instance_is_deleted_at_once_and_a_claimed_one_is_cancelled(
    full, api, user_with
):
    """An Instance that a daemon holds is deleted only after its attempt has ended (G12).

    The permission to delete does not include the permission to cancel (G14).
    """
    deleter = Api(user_with("view_instance", "delete_instance", name="deleter"))
    for state in State:
        instance, before = full[state], full.world.snapshot()
        address = f"instances/{instance.uuid}"
        if not instance.is_terminal:
            answer = deleter.call("DELETE", address)
            assert answer.status_code == 403
            assert "atp.operate" in answer.json()["detail"]
            assert full.world.snapshot() == before
        answer = (deleter if instance.is_terminal else api).call("DELETE", address)
        if state in CLAIMED:
            assert answer.status_code == 202
            assert answer.json() == api.get(address).json()
            assert instance.task.request == "cancel"
            assert api.call("DELETE", address).status_code == 202
        else:
            assert (answer.status_code, answer.json()["uuid"]) == (200, str(instance.uuid))
            assert api.get(address).status_code == 404
            who = LogRecord.objects.about(f"type:{instance.type.identifier}").last().who
            assert who == f"user {'deleter' if instance.is_terminal else 'operator'} via API"


def test_operations_without_parameters_reject_a_body(full, api):
    """A non-empty body is rejected instead of ignored (G13); an empty object is accepted."""
    before, redrive = full.world.snapshot(), f"instances/{full[State.FAILED].uuid}/redrive"
    for path in (redrive, f"daemons/{full.host.uuid}/quiet"):
        for body in ({"force": True}, [1], [], "text", 0):
            assert refusal(api.post(path, body)) == (400, "bad-request"), (path, body)
    assert full.world.snapshot() == before
    assert api.post(redrive, {}).status_code == 200


@pytest.mark.slow
def test_unknown_uuids_return_404(full, api):
    """The problem type names the missing kind: instance, daemon or graph (G13)."""
    for uuid in ("x", "%00", "0" * 32, "00000000-0000-7000-8000-000000000000"):
        calls = [("POST", f"instances/{uuid}/{name}", "instance") for name in POSTED]
        calls += [(method, f"instances/{uuid}", "instance") for method in ("DELETE", "PATCH")]
        calls += [
            ("GET", f"instances/{uuid}{part}", "instance")
            for part in ("", "/log", "/inputs", "/response", "/files", "/files/0")
        ]
        calls += [("POST", f"daemons/{uuid}/{order}", "daemon") for order in DaemonCommand]
        calls += [("POST", f"graphs/{uuid}/{name}", "graph") for name in OPERATIONS[GRAPH]]
        calls += [("GET", f"graphs/{uuid}{part}", "graph") for part in ("", "/nodes", "/graph.mmd")]
        for method, path, kind in calls:
            answer = api.call(method, path, b'{"priority": 1}' if method == "PATCH" else b"")
            assert refusal(answer) == (404, f"unknown-{kind}"), path
        assert refusal(api.get(f"daemons/{uuid}")) == (404, "not-found"), uuid


def test_patch_keeps_the_fields_that_the_body_omits(full, api):
    waiting = full[State.ACCEPTED]
    path = f"instances/{waiting.uuid}"
    found = api.send("PATCH", path, {"priority": 7.0, "due_at": 0}).json()
    assert (found["priority"], waiting.log.last().who) == (7, WHO)
    assert Task.objects.get(pk=waiting.pk).due_at <= full.world.store.now()
    assert api.send("PATCH", path, {"postpone": 5400.5}).status_code == 200
    due = Task.objects.get(pk=waiting.pk).due_at
    late = full.world.store.now() + timedelta(seconds=5400.5)
    assert abs(due - late) < timedelta(minutes=1)
    assert api.send("PATCH", path, {"collection": "maps"}).json()["collection"] == "maps"
    assert api.send("PATCH", path, {"collection": ""}).json()["collection"] == ""
    found = queue.get(waiting.uuid)
    assert (found.priority, found.task.due_at) == (7, due)


def test_an_if_match_header_with_an_etag_is_refused_with_412(full, api):
    """The API has no ETags, so it rejects the condition instead of ignoring it (G13)."""
    address, before = f"instances/{full[State.ACCEPTED].uuid}", full.world.snapshot()
    for method, path in (("PATCH", address), ("DELETE", address), ("POST", f"{address}/cancel")):
        answer = api.call(method, path, b"{}", **{"if-match": '"bogus"'})
        assert refusal(answer) == (412, "precondition-failed")
    assert full.world.snapshot() == before
    body, kind = b'{"priority": 3}', "application/merge-patch+json"
    assert api.call("PATCH", address, body, kind, **{"if-match": "*"}).json()["priority"] == 3


def test_the_api_sets_gates_and_lists_them(full, api):
    lane = {"type": "tests.echo", "collection": "a", "mode": "hold", "reason": "why"}
    [found] = api.post("gates", lane).json()["results"]
    assert found.items() >= (lane | {"who": WHO, "until": None}).items()
    assert api.get("gates").json()["results"] == [found]
    assert LogRecord.objects.about("lane:tests.echo/a").get().who == WHO
    api.post("gates", {"mode": "drop", "until": 60})
    api.post("gates", {"type": "tests.echo", "mode": "hold", "until": "2100-01-31T18:00:00Z"})
    found = {(row["type"], row["collection"]): row for row in api.get("gates").json()["results"]}
    assert found.keys() == {(None, None), ("tests.echo", None), ("tests.echo", "a")}
    assert found["tests.echo", None]["until"].startswith("2100-01-31T18:00:00")
    # Whoever names the gate that it was gets it back in the response.
    shown = found[None, None]
    answer = api.post("gates", {"mode": "hold", "expected": shown["since"]}).json()
    assert answer["was"] == shown
    assert f"Before, it was dropped by {WHO}" in answer["told"]


def test_the_api_sets_limits_and_resets_them_to_their_declared_values(full, api, limited):
    body = {"type": "tests.echo", "max_running": 9, "rate": "50/m", "weight": 2}
    [found] = api.post("limits", body).json()["results"]
    assert found.items() >= (body | {"burst": 1, "is_set": True, "who": WHO}).items()
    [found] = api.post("limits", {"type": "tests.echo", "rate": None}).json()["results"]
    assert (found["max_running"], found["rate"]) == (9, "")
    told = {(record.who, record.message) for record in LogRecord.objects.about("type:tests.echo")}
    assert (WHO, "limits: max_running: 9; rate: 50/m, burst: 1; weight: 2") in told
    answer = api.post("limits", {"type": "tests.echo", "default": True}).json()
    [found] = answer["results"]
    assert (found["max_running"], found["rate"], found["is_set"]) == (3, "100/m", False)
    assert "left to the code: 3 at a time; 100/m" in answer["told"]


def test_a_daemon_command_that_changes_nothing_returns_409(full, api):
    """tests/store/test_command.py tries the commands in all modes."""
    path = f"daemons/{full.host.uuid}"
    found = api.post(f"{path}/quiet").json()
    assert (found["request"], found["mode"]) == ("quiet", "running")
    assert found["seen"] == api.get(path).json()["seen"]
    assert LogRecord.objects.about("daemon:host:1").last().who == WHO
    refused = [api.post(f"{path}/quiet")]
    full.host.lose_lease()
    assert api.get(path).json()["condition"] == "lost"
    refused.append(api.post(f"{path}/stop"))
    for answer, told in zip(refused, ("has been told to go quiet", "it is lost"), strict=True):
        assert refusal(answer) == (409, "illegal-order")
        assert told in answer.json()["detail"]


@pytest.fixture
def hourly(world):
    queue.register_all()
    return queue.create_schedule("hourly", "tests.echo", every=3600, overlap="queue")


def test_run_and_backfill_return_the_instances_that_they_enqueue(hourly, api):
    told = api.post("schedules/hourly/run").json()
    assert (told["enqueued"], told["instances"]) == (1, [str(Instance.objects.get().uuid)])
    assert told["identifier"] == "hourly"
    start, end = hourly.next_at - 3 * hourly.every, hourly.next_at - 2 * hourly.every
    given = {"start": start.isoformat(), "end": end.isoformat()}
    told = api.post("schedules/hourly/backfill", given).json()
    uuids = Instance.objects.order_by("pk").values_list("uuid", flat=True)[1:]
    assert (told["enqueued"], told["instances"]) == (2, [str(uuid) for uuid in uuids])
    told = api.post("schedules/hourly/backfill", given).json()
    assert (told["enqueued"], told["instances"]) == (0, [])
    # Other verbs tell of none.
    assert not api.post("schedules/hourly/pause").json().keys() & {"enqueued", "instances"}


def test_pausing_a_paused_schedule_reports_who_paused_it_before(hourly):
    verb = OPERATIONS["schedule"]["pause"]
    for who, told in (("ann", "is paused."), ("bob", "It was already paused by ann: disk.")):
        outcome = verb.perform(queue.get_schedule("hourly"), who, reason="disk")
        assert outcome.told.endswith(told)


def test_changing_a_schedule_opens_no_pickle(hourly, api):
    Schedule.objects.filter(identifier="hourly").update(format="pickle", data="evil")
    assert api.send("PATCH", "schedules/hourly", {"every": 60}).status_code == 200
    row = queue.get_schedule("hourly")
    assert (row.every.total_seconds(), row.format, row.data) == (60.0, "pickle", "evil")


def test_inputs_of_a_schedule_are_shown_only_with_the_permission_view_inputs(
    full, user_with, django_assert_max_num_queries
):
    """Without it, inputs are null (G14). The queries of the list do not grow with its length."""
    for number in range(5):
        queue.create_schedule(f"of-{number}", "tests.echo", every=3600)
    api = Api(user_with("view_schedule"))
    with django_assert_max_num_queries(10):
        found = api.get("schedules").json()["results"]
    assert len(found) > 5
    assert {each["inputs"] for each in found} == {None}
    address = f"schedules/{found[0]['identifier']}"
    assert api.get(address).json()["inputs"] is None
    seeing = Api(user_with("view_schedule", "view_inputs", name="seeing"))
    assert seeing.get(address).json()["inputs"] is not None


def test_an_invalid_schedule_is_refused_and_a_missing_field_is_named(hourly, api):
    """A missing field is reported as required; a single tagged value is not valid inputs (G13)."""
    body = {"identifier": "other", "type": "tests.echo", "every": 60}
    for lacking in ("identifier", "type"):
        answer = api.post("schedules", {n: v for n, v in body.items() if n != lacking})
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"field": lacking, "detail": "It is required."}]
    calls = [("POST", "schedules", body | {"overlap": "queue", "most": 101})]
    for inputs in ({"$float": "nan"}, {"$date": "2030-01-31"}, {"$result": ["a"]}):
        calls.append(("POST", "schedules", body | {"inputs": inputs}))
        calls.append(("PATCH", "schedules/hourly", {"inputs": inputs}))
    for call in calls:
        assert api.send(*call).status_code == 422, call
    assert not Schedule.objects.filter(identifier="other").exists()


STATUS = {"bad-request": 400, "unknown-type": 404, "gate-changed": 409}
# Bodies, the problem that each is, and texts of the problem. Values that a kind refuses are tried
# in each interface by tests/test_verbs.py.
BAD = [
    ("PATCH", {"prioritty": 3}, "invalid-body", "prioritty", "Did you mean 'priority'"),
    ("PATCH", {"priority": None}, "invalid-body", "priority"),
    ("PATCH", {"collection": "a\nb", "due_at": "soon"}, "invalid-body", "due_at", "collection"),
    ("PATCH", {"due_at": 1e300}, "invalid-body", "due_at"),
    ("PATCH", {"due_at": "9999-12-31T23:59:59Z"}, "invalid-option", "due_at=9999-12-31T23:59:59"),
    ("PATCH", {"due_at": 1, "postpone": 1}, "invalid-option", "Give either due_at or postpone"),
    ("PATCH", {}, "invalid-option", "give priority, due_at, postpone or collection."),
    ("PATCH", [{"priority": 1}], "invalid-body"),
    ("PATCH", None, "bad-request"),
    ("gates", {"mode": {}}, "invalid-body"),
    ("gates", {}, "invalid-body"),
    ("gates", [], "invalid-body"),
    ("gates", {"mode": "hold", "typ": "tests.echo"}, "invalid-body"),
    ("gates", {"mode": "hold", "type": 3}, "invalid-body"),
    ("gates", {"mode": "open", "until": 5}, "invalid-body"),
    ("gates", {"mode": "hold", "expected": ["open"]}, "invalid-body"),
    ("gates", {"mode": "hold", "expected": "hold"}, "gate-changed"),
    ("gates", {"mode": "hold", "until": "2000-01-31T18:00:00Z"}, "invalid-gate"),
    ("gates", {"mode": "hold", "collection": "a"}, "invalid-gate"),
    ("gates", {"mode": "hold", "type": "\0"}, "unknown-type"),
    ("gates", None, "bad-request"),
    ("limits", None, "bad-request"),
    ("limits", {"rate": "1/s"}, "invalid-body"),
    ("limits", {"type": "tests.echo"}, "invalid-limit"),
    ("limits", {"type": "tests.echo", "rate": 5}, "invalid-body"),
    ("limits", {"type": "tests.echo", "collection": "a", "weight": 2}, "invalid-limit"),
    ("limits", {"type": "tests.echo", "default": True, "rate": "1/s"}, "invalid-body"),
    ("limits", {"type": "tests.echo", "default": 1}, "invalid-body"),
]


def test_invalid_bodies_are_rejected_and_nothing_is_written(full, api):
    before, instance = full.world.snapshot(), f"instances/{full[State.ACCEPTED].uuid}"
    for path, body, kind, *words in BAD:
        call = ("PATCH", instance) if path == "PATCH" else ("POST", path)
        answer = api.send(*call, body)
        assert refusal(answer) == (STATUS.get(kind, 422), kind), body
        said = " ".join([answer.json()["detail"], *fields(answer)])
        assert all(word in said for word in words), body
    assert full.world.snapshot() == before
    assert not queue.gates()
    assert not Limit.objects.exists()
