"""``POST instances/{uuid}/redrive``, ``/release`` and ``/cancel``."""

import pytest

from atp import queue
from atp.models import LogRecord
from atp.states import CLAIMED, Event, State
from atp.verbs.table import INSTANCE, VERBS, allowed

from ..app.tasks_transactional import row
from .client import problem

WHO = "user operator via API"


POSTED = [name for name, verb in VERBS[INSTANCE].items() if verb.method == "POST"]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", POSTED)
def test_an_action_is_possible_where_the_instance_says_so(full, api, state, name):
    """G6: by the one table of transitions."""
    instance = full[state]
    path = f"instances/{instance.uuid}"
    possible = [
        verb.name for verb in allowed(instance, queue.task(instance)) if verb.method == "POST"
    ]
    before = full.world.snapshot()
    answer = api.post(f"{path}/{name}")
    if name in possible:
        assert answer.status_code == 200
        assert answer.json() == api.get(path).json()
        assert full[state].log.last().who == WHO
    else:
        assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
        assert f"it is {state}" in answer.json()["detail"]
        assert full.world.snapshot() == before


def test_redrive(full, api):
    found = api.post(f"instances/{full[State.FAILED].uuid}/redrive").json()
    assert (found["state"], found["reason"], found["actions"]) == ("ACCEPTED", "", ["cancel"])


def test_release_asks_the_holder(full, api):
    found = api.post(f"instances/{full[State.RUNNING].uuid}/release").json()
    assert found["state"] == "RUNNING"
    assert full[State.RUNNING].task.request == "release"
    assert full[State.RUNNING].log.last().message == "release requested"


def test_pause_and_resume_ask_the_holder(full, api):
    """And of two who ask for the same the second is told."""
    for name, state in (("pause", State.RUNNING), ("resume", State.PAUSED)):
        address = f"instances/{full[state].uuid}/{name}"
        found = api.post(address).json()
        assert (found["state"], name in found["actions"]) == (state, False)
        assert full[state].task.request == name
        answer = api.post(address)
        assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
        assert f"has been asked to be {name}d already" in answer.json()["detail"]


def test_cancel_of_what_waits(full, api):
    found = api.post(f"instances/{full[State.ACCEPTED].uuid}/cancel").json()
    assert (found["state"], found["reason"]) == ("FAILED", "CANCELLED")
    assert found["actions"] == ["redrive"]


def test_cancel_of_what_runs(full, api):
    """Its holder is asked, once; after that nothing else can be asked of it."""
    address = f"instances/{full[State.RUNNING].uuid}"
    found = api.post(f"{address}/cancel").json()
    assert (found["state"], found["actions"]) == ("RUNNING", [])
    assert full[State.RUNNING].task.request == "cancel"
    before = full.world.snapshot()
    for name in ("cancel", "release"):
        answer = api.post(f"{address}/{name}")
        assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
        assert "has been asked to be cancelled already" in answer.json()["detail"]
    assert full.world.snapshot() == before


@pytest.mark.parametrize("state", State)
def test_delete(full, api, state):
    """G12: cancelled first; what a daemon holds is not removed before its end."""
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


def test_an_empty_object_is_no_body(full, api):
    assert api.post(f"instances/{full[State.FAILED].uuid}/redrive", {}).status_code == 200


@pytest.mark.parametrize("body", [{"force": True}, [1], [], "text", 0])
def test_a_body_is_refused(full, api, body):
    """G13: whoever gives one expects something of it."""
    before = full.world.snapshot()
    answer = api.post(f"instances/{full[State.FAILED].uuid}/redrive", body)
    assert (answer.status_code, problem(answer)) == (400, "bad-request")
    assert full.world.snapshot() == before


@pytest.mark.parametrize("name", POSTED)
@pytest.mark.parametrize("uuid", ["x", "00000000-0000-7000-8000-000000000000"])
def test_an_instance_that_there_is_not(full, api, name, uuid):
    answer = api.post(f"instances/{uuid}/{name}")
    assert (answer.status_code, problem(answer)) == (404, "unknown-instance")


def test_somebody_was_faster(full, api, monkeypatch):
    """The table is asked again where the event is written."""
    instance = full[State.FAILED]
    verb = "atp.verbs.table.instances.InstanceVerb"
    monkeypatch.setattr(f"{verb}.is_allowed", lambda self, instance: True)
    assert api.post(f"instances/{instance.uuid}/redrive").status_code == 200
    answer = api.post(f"instances/{instance.uuid}/redrive")
    assert (answer.status_code, problem(answer)) == (409, "illegal-transition")


def test_a_transactional_one_is_not_paused(full, api):
    """G13: it is not among its actions, and refused with the reason."""
    instance = row.enqueue(number=1)
    host = full.world.host(row.identifier)
    [case] = host.claim()
    host.move(case, Event.START)
    assert api.get(f"instances/{instance.uuid}").json()["actions"] == ["release", "cancel"]
    answer = api.post(f"instances/{instance.uuid}/pause")
    assert (answer.status_code, problem(answer)) == (409, "not-pausable")
    assert "is transactional" in answer.json()["detail"]
    assert queue.task(instance).request == ""


def test_a_wish_to_pause_can_be_taken_back(full, api):
    path = f"instances/{full[State.RUNNING].uuid}"
    assert "resume" not in api.get(path).json()["actions"]
    assert "resume" in api.post(f"{path}/pause").json()["actions"]
    found = api.post(f"{path}/resume").json()
    assert (found["state"], "pause" in found["actions"]) == ("RUNNING", True)


def test_a_refusal_says_the_reason(full, api):
    path = f"instances/{full[State.ACCEPTED].uuid}"
    api.post(f"{path}/cancel")
    assert api.post(f"{path}/cancel").json()["detail"].endswith("it is FAILED (CANCELLED).")


def test_why_it_waits(full, api):
    path = f"instances/{full[State.ACCEPTED].uuid}"
    queue.hold("tests.add", reason="r", by="ann")
    found = api.get(path).json()["waits_for"]
    assert found[0] == "tests.add is held by ann (r)."
    assert found[1].startswith("It is not due before ")
    assert api.get(f"instances/{full[State.RUNNING].uuid}").json()["waits_for"] == []
    assert "waits_for" not in api.get("instances").json()["results"][0]
