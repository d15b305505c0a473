"""``gates`` and ``limits``."""

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
    assert found["tests.echo", None]["until"].startswith("2100-01-31T18:00:00")
    for place in ({}, {"type": "tests.echo"}, {"type": "tests.echo", "collection": "a"}):
        api.post("gates", {"mode": "open", **place})
    assert not queue.gates()


def test_limits(full, api, limited):
    body = {"type": "tests.echo", "max_running": 9, "rate": "50/m", "weight": 2}
    [found] = api.post("limits", body).json()["results"]
    assert (found["max_running"], found["rate"], found["burst"]) == (9, "50/m", 1)
    assert (found["weight"], found["is_set"], found["who"]) == (2.0, True, WHO)
    [found] = api.post("limits", {"type": "tests.echo", "rate": None}).json()["results"]
    assert (found["max_running"], found["rate"]) == (9, "")
    told = [record.message for record in LogRecord.objects.about("type:tests.echo")]
    assert "limits: max_running: 9; rate: 50/m, burst: 1; weight: 2" in told
    answer = api.post("limits", {"type": "tests.echo", "default": True}).json()
    [found] = answer["results"]
    assert (found["max_running"], found["rate"], found["is_set"]) == (3, "100/m", False)
    assert "left to the code: 3 at a time; 100/m" in answer["told"]


# Values that a kind refuses are tried on each surface by tests/test_verbs.py.
BAD = [
    ("gates", {"mode": {}}, 422, "invalid-body"),
    ("gates", {}, 422, "invalid-body"),
    ("gates", [], 422, "invalid-body"),
    ("gates", {"mode": "hold", "typ": "tests.echo"}, 422, "invalid-body"),
    ("gates", {"mode": "hold", "type": 3}, 422, "invalid-body"),
    ("gates", {"mode": "open", "until": 5}, 422, "invalid-body"),
    ("gates", {"mode": "hold", "expected": ["open"]}, 422, "invalid-body"),
    ("gates", {"mode": "hold", "expected": "hold"}, 409, "gate-changed"),
    ("gates", {"mode": "hold", "until": "2000-01-31T18:00:00Z"}, 422, "invalid-gate"),
    ("gates", {"mode": "hold", "collection": "a"}, 422, "invalid-gate"),
    ("gates", {"mode": "hold", "type": "\0"}, 404, "unknown-type"),
    ("gates", None, 400, "bad-request"),
    ("limits", None, 400, "bad-request"),
    ("limits", {"rate": "1/s"}, 422, "invalid-body"),
    ("limits", {"type": "tests.echo"}, 422, "invalid-limit"),
    ("limits", {"type": "tests.echo", "rate": 5}, 422, "invalid-body"),
    ("limits", {"type": "tests.echo", "collection": "a", "weight": 2}, 422, "invalid-limit"),
    ("limits", {"type": "tests.echo", "default": True, "rate": "1/s"}, 422, "invalid-body"),
    ("limits", {"type": "tests.echo", "default": 1}, 422, "invalid-body"),
]


def test_what_makes_no_sense(full, api):
    """G13: refused before anything is written."""
    before = full.world.snapshot()
    for path, body, status, name in BAD:
        answer = api.post(path, body)
        assert (answer.status_code, problem(answer)) == (status, name), body
    assert full.world.snapshot() == before
    assert not queue.gates()
    assert not Limit.objects.exists()


def test_a_gate_that_somebody_else_has_set(full, api):
    """One wins, the other is told; the answer says what was there before."""
    queue.drop("tests.echo", reason="spam", by="ann")
    body = {"type": "tests.echo", "mode": "hold", "expected": "open"}
    answer = api.post("gates", body)
    assert (answer.status_code, problem(answer)) == (409, "gate-changed")
    assert "it is dropped by ann, since" in answer.json()["detail"]
    [shown] = api.get("gates").json()["results"]
    answer = api.post("gates", body | {"expected": shown["since"]}).json()
    assert answer["was"] == shown
    assert "Before, it was dropped by ann" in answer["told"]
