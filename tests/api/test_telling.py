"""What is told of an Instance beside its own columns, and to whom (G14)."""

import logging

from atp.models import Inputs
from atp.reports import documents
from atp.states import Event, State

from ..populated import HOSTILE
from .client import Api


def enqueue(api, *items):
    return api.post("instances", [{"type": "tests.add", **item} for item in items])


def arrived(answer):
    return [(each["is_new"], each["inputs_differ"]) for each in answer.json()]


def test_each_says_whether_it_is_new(world, api):
    """G13: other inputs than those that are kept are not passed over in silence."""
    old = {"identifier": "old", "existing": "return", "inputs": {"first": 1, "second": 2}}
    assert arrived(enqueue(api, old)) == [(True, False)]
    again = old | {"inputs": {"second": 2, "first": 1}}
    other = old | {"inputs": {"first": 1, "second": 3}}
    twice = {"identifier": "a", "existing": "return", "inputs": [2]}
    answer = enqueue(api, again, other, {"inputs": [1]}, twice, twice | {"inputs": [1]})
    assert answer.status_code == 201
    new, differs = (True, False), (False, True)
    assert arrived(answer) == [(False, False), differs, new, new, differs]
    single = api.post("instances", {"type": "tests.add", **other})
    assert (single.status_code, single.json()["inputs_differ"]) == (200, True)


def test_who_may_not_see_inputs_is_not_told_whether_guessed_ones_are_right(world, api, user_with):
    """G14: nor is a pickle opened to compare."""
    body = {"type": "tests.add", "identifier": "a", "existing": "return", "inputs": [3]}
    api.post("instances", body)
    blind = Api(user_with("view_instance", "enqueue", name="blind"))
    answers = [blind.post("instances", body | {"inputs": [n]}) for n in (3, 4)]
    assert [each.status_code for each in answers] == [200, 200]
    assert ["inputs_differ" in each.json() for each in answers] == [False, False]
    Inputs.objects.update(format="pickle", data="evil")
    assert api.post("instances", body).json()["inputs_differ"] is None


def test_only_who_sees_daemons_is_told_who_holds_it(full, user_with):
    """G14."""
    reader = Api(user_with("view_instance", "view_task"))
    assert "daemon" not in reader.get(f"instances/{full[State.RUNNING].uuid}").json()
    [first, *_] = reader.get("tasks?claimed=true").json()["results"]
    assert "daemon" not in first


def test_why_it_failed_last(full, api):
    """It may have failed before; what it was redriven from counts no more."""
    failed, found = full[State.FAILED].uuid, []
    found.append(api.get(f"instances/{failed}").json())
    found += api.get(f"instances?state=FAILED&uuid={failed}").json()["results"]
    assert {told["error"] for told in found} == {documents.headline(f"ValueError: {HOSTILE}")}
    assert documents.headline("x" * 300) == "x" * 199 + "…"
    assert api.get(f"instances/{full[State.FINISHED].uuid}").json()["error"] is None
    instance, move = full.claimed()
    move(Event.START)
    move(Event.FAIL, reason="ERROR", message="ValueError: first", level=logging.ERROR)
    assert api.get(f"instances/{instance.uuid}").json()["error"] == "ValueError: first"
    redriven = api.post(f"instances/{instance.uuid}/redrive").json()
    assert redriven["error"] is None


def test_who_is_told_why(full, user_with):
    """G14: a message may quote what not everybody is to see."""
    for permission, is_told in (("operate", 1), ("view_logrecord", 1), ("view_inputs", 0)):
        reader = Api(user_with("view_instance", permission, name=permission))
        for path in ("instances", f"instances/{full[State.FAILED].uuid}"):
            answer = reader.get(path).json()
            for told in answer.get("results", [answer]):
                assert ("error" in told) == bool(is_told), permission


def test_those_without_a_collection(full, api):
    full.world.enqueue(type="tests.echo", collection="maps")
    for path in ("instances", "tasks"):
        every = api.get(f"{path}?limit=500").json()["results"]
        without = api.get(f"{path}?limit=500&collection=").json()["results"]
        assert without == [each for each in every if not each["collection"]]
        assert 0 < len(without) < len(every)
