"""What an operator does with an Instance: ``POST instances/{uuid}/redrive``, ``PATCH``, …"""

from datetime import timedelta

from django.db import transaction

from atp import queue
from atp.commands import DaemonCommand
from atp.models import LogRecord, Task
from atp.operations.table import GRAPH, INSTANCE, OPERATIONS, allowed_operations
from atp.states import CLAIMED, State

from .client import Api, fields, problem

WHO = "user operator via API"
POSTED = [name for name, verb in OPERATIONS[INSTANCE].items() if verb.method == "POST"]


def test_an_action_is_possible_where_the_instance_says_so(full, api):
    """G6: by the one table of transitions."""
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
                    assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
                    assert f"it is {state}" in answer.json()["detail"], (state, name)
                    assert full.world.snapshot() == before, (state, name)
                transaction.set_rollback(True)


def test_what_a_holder_has_been_asked_is_no_action_any_more(full, api):
    address = f"instances/{full[State.RUNNING].uuid}"
    for name, actions in (
        ("pause", {"resume", "release", "cancel"}),
        # A wish to pause can be taken back.
        ("resume", {"pause", "release", "cancel"}),
        ("cancel", set()),
    ):
        found = api.post(f"{address}/{name}").json()
        assert (found["state"], set(found["actions"])) == ("RUNNING", actions), name
    before = full.world.snapshot()
    for name in ("cancel", "release"):
        answer = api.post(f"{address}/{name}")
        assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
        assert "has been asked to be cancelled already" in answer.json()["detail"]
    assert full.world.snapshot() == before


def test_delete(full, api):
    """G12: cancelled first; what a daemon holds is not removed before its end."""
    for state in State:
        instance = full[state]
        address = f"instances/{instance.uuid}"
        answer = api.call("DELETE", address)
        if state in CLAIMED:
            assert answer.status_code == 202
            assert answer.json() == api.get(address).json()
            assert instance.task.request == "cancel"
            assert api.call("DELETE", address).status_code == 202
        else:
            assert answer.status_code == 200
            assert answer.json()["uuid"] == str(instance.uuid)
            assert api.get(address).status_code == 404
            subject = f"type:{instance.type.identifier}"
            assert LogRecord.objects.about(subject).last().who == WHO


def test_a_body_is_refused(full, api):
    """G13: whoever gives one expects something of it; an empty object is none."""
    before, redrive = full.world.snapshot(), f"instances/{full[State.FAILED].uuid}/redrive"
    for path in (redrive, f"daemons/{full.host.uuid}/quiet"):
        for body in ({"force": True}, [1], [], "text", 0):
            answer = api.post(path, body)
            assert (answer.status_code, problem(answer)) == (400, "bad-request"), (path, body)
    assert full.world.snapshot() == before
    assert api.post(redrive, {}).status_code == 200


def test_what_there_is_not(full, api):
    """G13."""
    for uuid in ("x", "%00", "00000000-0000-7000-8000-000000000000"):
        calls = [("POST", f"instances/{uuid}/{name}", "instance") for name in POSTED]
        calls += [(method, f"instances/{uuid}", "instance") for method in ("DELETE", "PATCH")]
        calls += [("POST", f"daemons/{uuid}/{order}", "daemon") for order in DaemonCommand]
        calls += [("POST", f"graphs/{uuid}/{name}", "graph") for name in OPERATIONS[GRAPH]]
        for method, path, kind in calls:
            answer = api.call(method, path, b'{"priority": 1}' if method == "PATCH" else b"")
            assert (answer.status_code, problem(answer)) == (404, f"unknown-{kind}"), path


# Changing


def test_a_change_leaves_what_is_left_out(full, api):
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


BAD = [
    ({"prioritty": 3}, "invalid-body", ["prioritty"], "Did you mean 'priority'"),
    ({"priority": None}, "invalid-body", ["priority"], ""),
    ({"collection": "a\nb", "due_at": "soon"}, "invalid-body", ["due_at", "collection"], ""),
    ({"due_at": 1e300}, "invalid-body", ["due_at"], ""),
    ({"due_at": "9999-12-31T23:59:59Z"}, "invalid-option", [], "due_at=9999-12-31T23:59:59+00:00"),
    ({"due_at": 1, "postpone": 1}, "invalid-option", [], "Give either due_at or postpone"),
    ({}, "invalid-option", [], "give priority, due_at, postpone or collection."),
    ([{"priority": 1}], "invalid-body", [], ""),
]


def test_a_bad_change(full, api):
    """G13: told by field, in the words of the body, with nothing written."""
    before, path = full.world.snapshot(), f"instances/{full[State.ACCEPTED].uuid}"
    for body, kind, named, told in BAD:
        answer = api.send("PATCH", path, body)
        assert (answer.status_code, problem(answer)) == (422, kind), body
        assert set(fields(answer)) >= set(named), body
        assert told in answer.json()["detail"], body
    answer = api.call("PATCH", path)
    assert (answer.status_code, problem(answer)) == (400, "bad-request")
    assert full.world.snapshot() == before


def test_no_if_match_fits_what_has_no_etag(full, api):
    """G13: a condition is not passed over."""
    address, before = f"instances/{full[State.ACCEPTED].uuid}", full.world.snapshot()
    for method, path in (("PATCH", address), ("DELETE", address), ("POST", f"{address}/cancel")):
        answer = api.call(method, path, b"{}", **{"if-match": '"bogus"'})
        assert (answer.status_code, problem(answer)) == (412, "precondition-failed")
    assert full.world.snapshot() == before
    body, kind = b'{"priority": 3}', "application/merge-patch+json"
    assert api.call("PATCH", address, body, kind, **{"if-match": "*"}).json()["priority"] == 3


def test_deleting_what_lives_takes_the_permission_to_operate(full, user_with):
    """G14: who may delete may not end what runs by it."""
    api = Api(user_with("view_instance", "delete_instance"))
    for state in State:
        instance, before = full[state], full.world.snapshot()
        answer = api.call("DELETE", f"instances/{instance.uuid}")
        if instance.is_terminal:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 403
            assert "atp.operate" in answer.json()["detail"]
            assert full.world.snapshot() == before
