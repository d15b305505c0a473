"""``gates`` and ``limits``."""

from datetime import UTC, datetime

import pytest

from atp import queue
from atp.models import Limit, LogRecord

from .client import problem

WHO = "user operator via API"


def test_gates(full, api):
    assert api.get("gates").json()["results"] == []
    answer = api.post(
        "gates", {"type": "tests.echo", "collection": "a", "mode": "hold", "reason": "why"}
    )
    [found] = answer.json()["results"]
    assert (found["type"], found["collection"], found["mode"]) == ("tests.echo", "a", "hold")
    assert (found["who"], found["reason"], found["until"]) == (WHO, "why", None)
    assert api.get("gates").json()["results"] == answer.json()["results"]
    assert LogRecord.objects.about("lane:tests.echo/a").get().who == WHO
    api.post("gates", {"mode": "drop", "until": 60})
    api.post("gates", {"type": "tests.echo", "mode": "hold", "until": "2100-01-31T18:00:00Z"})
    found = {(row["type"], row["collection"]): row for row in api.get("gates").json()["results"]}
    assert found.keys() == {(None, None), ("tests.echo", None), ("tests.echo", "a")}
    until = datetime.fromisoformat(found["tests.echo", None]["until"])
    assert until == datetime(2100, 1, 31, 18, tzinfo=UTC)
    for place in ({}, {"type": "tests.echo"}, {"type": "tests.echo", "collection": "a"}):
        api.post("gates", {"mode": "open", **place})
    assert not queue.gates()


def test_limits(full, api):
    body = {"type": "tests.echo", "max_running": 3, "rate": "100/m", "weight": 2}
    [found] = api.post("limits", body).json()["results"]
    assert (found["max_running"], found["rate"], found["burst"]) == (3, "100/m", 1)
    assert (found["weight"], found["is_set"], found["who"]) == (2.0, True, WHO)
    [found] = api.post("limits", {"type": "tests.echo", "rate": None}).json()["results"]
    assert (found["max_running"], found["rate"]) == (3, "")
    assert api.post("limits", {"type": "tests.echo", "default": True}).json()["results"] == []
    told = [record.message for record in LogRecord.objects.about("type:tests.echo")]
    assert "limits: max_running: 3; rate: 100/m, burst: 1; weight: 2" in told


@pytest.mark.parametrize(
    ("path", "body", "status", "name"),
    [
        ("gates", {"mode": "shut"}, 422, "invalid-body"),
        ("gates", {"mode": {}}, 422, "invalid-body"),
        ("gates", {}, 422, "invalid-body"),
        ("gates", [], 422, "invalid-body"),
        ("gates", {"mode": "hold", "typ": "tests.echo"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "type": 3}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "until": "soon"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "until": True}, 422, "invalid-body"),
        ("gates", {"mode": "open", "until": 5}, 422, "invalid-body"),
        ("gates", {"mode": "open", "expected": "shut"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "expected": ["open"]}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "expected": "2030-01-31T18:00:00"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "expected": "hold"}, 409, "gate-changed"),
        ("gates", {"mode": "hold", "until": "2000-01-31T18:00:00Z"}, 422, "invalid-gate"),
        ("gates", {"mode": "hold", "until": -5}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "until": 0}, 422, "invalid-gate"),
        ("gates", {"mode": "hold", "until": 1e15}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "collection": "a"}, 422, "invalid-gate"),
        ("gates", {"mode": "hold", "reason": "a\nb"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "type": "tests.echo", "collection": "\0"}, 422, "invalid-body"),
        ("gates", {"mode": "hold", "type": "tests.ecko"}, 404, "unknown-type"),
        ("gates", {"mode": "hold", "type": "\0"}, 404, "unknown-type"),
        ("limits", {"type": "tests.ecko", "rate": "1/s"}, 404, "unknown-type"),
        ("limits", {"rate": "1/s"}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo"}, 422, "invalid-limit"),
        ("limits", {"type": "tests.echo", "rate": "fast"}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "rate": 5}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "burst": 5}, 422, "invalid-limit"),
        ("limits", {"type": "tests.echo", "max_running": 0}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "max_running": True}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "weight": -1}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "collection": "a", "weight": 2}, 422, "invalid-limit"),
        ("limits", {"type": "tests.echo", "default": True, "rate": "1/s"}, 422, "invalid-body"),
        ("limits", {"type": "tests.echo", "default": 1}, 422, "invalid-body"),
    ],
)
def test_what_makes_no_sense(full, api, path, body, status, name):
    """G13: refused before anything is written."""
    before = full.world.snapshot()
    answer = api.post(path, body)
    assert (answer.status_code, problem(answer)) == (status, name)
    assert full.world.snapshot() == before
    assert not queue.gates()
    assert not Limit.objects.exists()


@pytest.mark.parametrize("path", ["gates", "limits"])
def test_a_body_is_needed(full, api, path):
    assert problem(api.post(path)) == "bad-request"


def test_a_gate_that_somebody_else_has_set(full, api):
    """One wins, the other is told."""
    queue.drop("tests.echo", reason="spam", by="ann")
    before = full.world.snapshot()
    body = {"type": "tests.echo", "mode": "hold", "expected": "open"}
    answer = api.post("gates", body)
    assert (answer.status_code, problem(answer)) == (409, "gate-changed")
    assert "it is dropped by ann, since" in answer.json()["detail"]
    assert full.world.snapshot() == before
    [shown] = api.get("gates").json()["results"]
    answer = api.post("gates", body | {"expected": shown["since"]}).json()
    assert answer["was"] == shown
    assert "Before, it was dropped by ann" in answer["told"]
    answer = api.post("gates", {"type": "tests.echo", "mode": "open"}).json()
    assert answer["was"]["mode"] == "hold"
    answer = api.post("gates", {"type": "tests.echo", "mode": "open", "reason": "x"}).json()
    assert (answer["was"], answer["told"]) == (None, "It is open already.")


def test_a_lane_below_what_is_held(full, api):
    queue.hold("tests.echo", reason="disk full", by="ann")
    queue.hold("tests.echo", "a")
    body = {"type": "tests.echo", "collection": "a", "mode": "open"}
    told = api.post("gates", body).json()["told"]
    assert "Nothing moves there yet: tests.echo is held by ann" in told
    assert "disk full" in told


@pytest.mark.parametrize("body", [{"max_running": 0}, {"rate": "0/s"}, {"rate": "0"}])
def test_nothing_at_all_is_no_limit(full, api, body):
    answer = api.post("limits", {"type": "tests.echo", **body})
    assert "a gate" in answer.json()["detail"]


def test_limits_are_left_to_the_code(full, api, limited):
    queue.limit("tests.echo", max_running=9)
    answer = api.post("limits", {"type": "tests.echo", "default": True}).json()
    [found] = answer["results"]
    assert (found["max_running"], found["rate"], found["is_set"]) == (3, "100/m", False)
    assert "left to the code: 3 at a time; 100/m" in answer["told"]
