"""What is told of an Instance beside its own columns, and to whom (G14)."""

import logging

import pytest

from atp.models import Instance
from atp.reports import failures
from atp.states import CLAIMED, Event, State

from ..populated import HOSTILE
from .client import Api, problem


def enqueue(api, *items):
    return api.post("instances", [{"type": "tests.add", **item} for item in items])


def arrived(answer):
    return [(each["is_new"], each["inputs_differ"]) for each in answer.json()]


def test_each_of_an_array_says_whether_it_is_new(world, api):
    """G13: other inputs than those that are kept are not passed over in silence."""
    old = {"identifier": "old", "existing": "return", "inputs": {"first": 1, "second": 2}}
    assert arrived(enqueue(api, old)) == [(True, False)]
    again = old | {"inputs": {"second": 2, "first": 1}}
    other = old | {"inputs": {"first": 1, "second": 3}}
    answer = enqueue(api, again, other, {"inputs": [1]})
    assert answer.status_code == 201
    assert arrived(answer) == [(False, False), (False, True), (True, False)]
    assert enqueue(api, other).status_code == 200


def test_the_second_of_one_array_is_not_new(world, api):
    twice = {"identifier": "a", "existing": "return"}
    answer = enqueue(api, twice | {"inputs": [1]}, twice | {"inputs": [2]})
    assert arrived(answer) == [(True, False), (False, True)]


def test_a_single_one(world, api):
    body = {"type": "tests.add", "identifier": "a", "existing": "return", "inputs": [3]}
    assert api.post("instances", body).json()["is_new"]
    answer = api.post("instances", body | {"inputs": [99]})
    assert answer.status_code == 200
    assert (answer.json()["is_new"], answer.json()["inputs_differ"]) == (False, True)


def test_who_may_not_see_inputs_is_not_told_whether_guessed_ones_are_right(world, api, user_with):
    """G14."""
    body = {"type": "tests.add", "identifier": "a", "existing": "return", "inputs": [3]}
    api.post("instances", body)
    blind = Api(user_with("view_instance", "enqueue", name="blind"))
    answers = [blind.post("instances", body | {"inputs": [n]}) for n in (3, 4)]
    assert [each.status_code for each in answers] == [200, 200]
    assert ["inputs_differ" in each.json() for each in answers] == [False, False]


def test_a_pickle_is_not_opened_to_compare(world, api):
    """G14."""
    body = {"type": "tests.add", "identifier": "a", "existing": "return", "inputs": [3]}
    api.post("instances", body)
    Instance.objects.get().inputs.__class__.objects.update(format="pickle", data="evil")
    assert api.post("instances", body).json()["inputs_differ"] is None


@pytest.mark.parametrize("state", State)
def test_when_it_is_due_and_who_holds_it(full, api, state):
    told = api.get(f"instances/{full[state].uuid}").json()
    is_live = state not in (State.FINISHED, State.FAILED)
    assert (told["due_at"] is not None) == is_live
    assert (told["daemon"] is not None) == (state in CLAIMED)


def test_only_who_sees_daemons_is_told_who_holds_it(full, user_with):
    """G14."""
    reader = Api(user_with("view_instance", "view_task"))
    assert "daemon" not in reader.get(f"instances/{full[State.RUNNING].uuid}").json()
    [first, *_] = reader.get("tasks?claimed=true").json()["results"]
    assert "daemon" not in first


@pytest.mark.parametrize("path", ["instances/{}", "instances?state=FAILED&uuid={}"])
def test_why_it_failed(full, api, path):
    answer = api.get(path.format(full[State.FAILED].uuid)).json()
    [told] = answer.get("results", [answer])
    assert told["error"] == failures.headline(f"ValueError: {HOSTILE}")
    assert api.get(f"instances/{full[State.FINISHED].uuid}").json()["error"] is None


@pytest.mark.parametrize(
    ("permission", "is_told"), [("operate", True), ("view_logrecord", True), ("view_inputs", False)]
)
def test_who_is_told_why(full, user_with, permission, is_told):
    """G14: a message may quote what not everybody is to see."""
    reader = Api(user_with("view_instance", permission))
    for path in ("instances", f"instances/{full[State.FAILED].uuid}"):
        answer = reader.get(path).json()
        for told in answer.get("results", [answer]):
            assert ("error" in told) == is_told


def test_why_it_failed_last(full, api):
    """It may have failed before; what it was redriven from counts no more."""
    instance, move = full.claimed()
    move(Event.START)
    move(Event.FAIL, reason="ERROR", message="ValueError: first", level=logging.ERROR)
    assert api.get(f"instances/{instance.uuid}").json()["error"] == "ValueError: first"
    redriven = api.post(f"instances/{instance.uuid}/redrive").json()
    assert redriven["error"] is None


RAISED = """Traceback (most recent call last):
  File "tasks.py", line 3, in work
    first()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "tasks.py", line 5, in work
    second()
    ~~~~~~^^
ValueError: bins must be positive
  and more of the text
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "tasks.py", line 3, in work
  |     raise ExceptionGroup("many", errors)
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +---------------- 2 ----------------
    | ValueError: two
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (RAISED, "ValueError: bins must be positive"),
        (GROUP, "ExceptionGroup: many (2 sub-exceptions)"),
        ("daemon vm:30052 was lost\nand more", "daemon vm:30052 was lost"),
        ("", ""),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_the_headline(message, line):
    assert failures.headline(message) == line


@pytest.mark.parametrize("state", State)
def test_deleting_what_lives_takes_the_permission_to_operate(full, user_with, state):
    """G14: who may delete may not end what runs by it."""
    api = Api(user_with("view_instance", "delete_instance"))
    instance, before = full[state], full.world.snapshot()
    answer = api.call("DELETE", f"instances/{instance.uuid}")
    if instance.is_terminal:
        assert answer.status_code == 200
    else:
        assert answer.status_code == 403
        assert "atp.operate" in answer.json()["detail"]
        assert full.world.snapshot() == before


def test_the_log_from_its_end(full, api):
    path = f"instances/{full[State.FAILED].uuid}/log"
    oldest = api.get(path).json()["results"]
    first = api.get(f"{path}?order=newest&limit=2").json()
    second = api.get(f"{path}?order=newest&page={first['next_page']}").json()
    assert first["results"] + second["results"] == oldest[::-1]
    assert api.get(f"{path}?order=oldest").json()["results"] == oldest
    wrong = api.get(f"{path}?order=newst")
    assert problem(wrong) == "invalid-parameter"
    assert "Did you mean 'newest'?" in wrong.json()["detail"]


@pytest.mark.parametrize("path", ["instances", "tasks"])
def test_those_without_a_collection(full, api, path):
    full.world.enqueue(type="tests.echo", collection="maps")
    every = api.get(f"{path}?limit=500").json()["results"]
    without = api.get(f"{path}?limit=500&collection=").json()["results"]
    assert without == [each for each in every if not each["collection"]]
    assert 0 < len(without) < len(every)


def test_the_bad_row_of_many_is_named(world, api):
    """G13: in the sentence, not only in the places."""
    rows = [{"inputs": [1]}] * 4
    answer = enqueue(api, *rows, {"inputs": [1], "identifier": ""}, *rows)
    assert answer.json()["detail"].startswith("[4].identifier: ")
    answer = enqueue(api, *rows, {"inputs": {"frist": 1}})
    assert answer.json()["detail"].startswith("[4].inputs.frist: ")


def test_no_if_match_fits_what_has_no_etag(full, api):
    """G13: a condition is not passed over."""
    address, before = f"instances/{full[State.ACCEPTED].uuid}", full.world.snapshot()
    for method, path in (("PATCH", address), ("DELETE", address), ("POST", f"{address}/cancel")):
        answer = api.call(method, path, b"{}", **{"if-match": '"bogus"'})
        assert (answer.status_code, problem(answer)) == (412, "precondition-failed")
    assert full.world.snapshot() == before
    body = b'{"priority": 3}'
    assert api.call("PATCH", address, body, **{"if-match": "*"}).status_code == 200


def test_a_merge_patch(full, api):
    address = f"instances/{full[State.ACCEPTED].uuid}"
    kind = "application/merge-patch+json"
    assert api.call("PATCH", address, b'{"priority": 3}', kind).json()["priority"] == 3


def test_who_accepts_problem_documents_is_answered(full, api):
    assert api.get("types", accept="application/problem+json").status_code == 200
    answer = api.get("nothing", accept="application/problem+json")
    assert answer.status_code == 404


def test_pictures_have_their_ending(full, api):
    uuid = full.finished(content_type="image/png", data=b"\x89PNG", size=4).uuid
    disposition = api.get(f"instances/{uuid}/response").headers["Content-Disposition"]
    assert f'"response-{uuid}.png"' in disposition


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000, b'{"a": ' * 5000])
def test_what_cannot_be_read_is_told_in_our_words(api, body):
    detail = api.call("POST", "instances", body).json()["detail"]
    assert "codec" not in detail
    assert "recursion" not in detail
