"""``PATCH instances/{uuid}``."""

import json
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Task
from atp.states import State

from .client import fields, problem

WHO = "user operator via API"


def patch(api, instance, document):
    return api.call("PATCH", f"instances/{instance.uuid}", json.dumps(document).encode())


def test_everything(full, api):
    waiting = full[State.ACCEPTED]
    body = {"priority": 7.0, "collection": "maps", "due_at": "2100-01-31T18:00:00+01:00"}
    found = patch(api, waiting, body).json()
    assert (found["priority"], found["collection"]) == (7, "maps")
    assert found == api.get(f"instances/{waiting.uuid}").json()
    assert Task.objects.get(pk=waiting.pk).due_at.isoformat() == "2100-01-31T17:00:00+00:00"
    assert waiting.log.last().who == WHO


def test_run_now_and_postpone(full, api):
    waiting = full[State.ACCEPTED]
    assert patch(api, waiting, {"due_at": 0}).status_code == 200
    assert Task.objects.get(pk=waiting.pk).due_at <= full.world.store.now()
    assert patch(api, waiting, {"postpone": 5400.5}).status_code == 200
    late = full.world.store.now() + timedelta(seconds=5400.5)
    assert abs(Task.objects.get(pk=waiting.pk).due_at - late) < timedelta(minutes=1)


def test_what_is_left_out_stays(full, api):
    waiting = full[State.ACCEPTED]
    due = waiting.task.due_at
    patch(api, waiting, {"collection": "maps"})
    patch(api, waiting, {"priority": 3})
    found = queue.get(waiting.uuid)
    assert (found.priority, found.collection, found.task.due_at) == (3, "maps", due)
    assert patch(api, waiting, {"collection": ""}).json()["collection"] == ""


@pytest.mark.parametrize("state", sorted(set(State) - {State.ACCEPTED}))
def test_what_does_not_wait(full, api, state):
    """G6: the answer says in which state it is."""
    before = full.world.snapshot()
    answer = patch(api, full[state], {"priority": 3})
    assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
    assert f"it is {state}" in answer.json()["detail"]
    assert full.world.snapshot() == before


@pytest.mark.parametrize(
    ("body", "kind", "named"),
    [
        ({"prioritty": 3}, "invalid-body", ["prioritty"]),
        ({"priority": 101}, "invalid-body", ["priority"]),
        ({"priority": None}, "invalid-body", ["priority"]),
        ({"priority": True}, "invalid-body", ["priority"]),
        ({"priority": 1.5}, "invalid-body", ["priority"]),
        ({"collection": "a\nb", "due_at": "soon"}, "invalid-body", ["due_at", "collection"]),
        ({"collection": None}, "invalid-body", ["collection"]),
        ({"due_at": None}, "invalid-body", ["due_at"]),
        ({"due_at": "2030-01-31T18:00:00"}, "invalid-body", ["due_at"]),
        ({"due_at": -1}, "invalid-body", ["due_at"]),
        ({"due_at": 1e300}, "invalid-body", ["due_at"]),
        ({"postpone": -1}, "invalid-body", ["postpone"]),
        ({"postpone": "2h"}, "invalid-body", ["postpone"]),
        ({"due_at": 1, "postpone": 1}, "invalid-option", []),
        ({}, "invalid-option", []),
        ([], "invalid-body", []),
        ([{"priority": 1}], "invalid-body", []),
        ("text", "invalid-body", []),
        (None, "invalid-body", []),
    ],
)
def test_bad_input(full, api, body, kind, named):
    """G13: told by field, with nothing written."""
    before = full.world.snapshot()
    answer = patch(api, full[State.ACCEPTED], body)
    assert (answer.status_code, problem(answer)) == (422, kind)
    assert fields(answer) == named
    assert full.world.snapshot() == before


def test_without_a_body(full, api):
    answer = api.call("PATCH", f"instances/{full[State.ACCEPTED].uuid}")
    assert (answer.status_code, problem(answer)) == (400, "bad-request")


@pytest.mark.parametrize("uuid", ["x", "00000000-0000-7000-8000-000000000000"])
def test_an_instance_that_there_is_not(full, api, uuid):
    answer = api.call("PATCH", f"instances/{uuid}", b'{"priority": 1}')
    assert (answer.status_code, problem(answer)) == (404, "unknown-instance")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "give priority, due_at, postpone or collection."),
        ({"due_at": 1, "postpone": 1}, "Give either due_at or postpone"),
        ({"due_at": "9999-12-31T23:59:59Z"}, "due_at=9999-12-31T23:59:59+00:00 is beyond"),
    ],
)
def test_errors_name_fields_and_values_as_the_body_does(full, api, body, told):
    assert told in patch(api, full[State.ACCEPTED], body).json()["detail"]
