"""What belongs to an Instance: log, inputs, response, files."""

from atp.models import Inputs, Step
from atp.states import State

from ..populated import HOSTILE, MARKUP
from .client import problem

BYTES = bytes(range(256))


def test_the_log_is_oldest_first(full, api):
    """G6: what happened, and who did it."""
    address = f"instances/{full[State.FAILED].uuid}/log"
    records = api.get(address).json()["results"]
    events = [record["event"] for record in records if record["event"]]
    assert events == ["enqueue", "claim", "start", "fail"]
    assert HOSTILE in records[-1]["message"]
    assert records[-1]["level"] == 40
    first = api.get(f"{address}?order=newest&limit=2").json()
    second = api.get(f"{address}?order=newest&page={first['next_page']}").json()
    assert first["results"] + second["results"] == records[::-1]
    wrong = api.get(f"{address}?order=newst")
    assert problem(wrong) == "invalid-parameter"
    assert "Did you mean 'newest'?" in wrong.json()["detail"]


def test_inputs(full, api):
    """G14: a pickle is never opened."""
    address = f"instances/{full[State.FAILED].uuid}/inputs"
    rows = Inputs.objects.filter(pk=full[State.FAILED].pk)
    found = api.get(address).json()
    assert found == {"format": "json", "value": {"said": MARKUP, "number": 7}, "carried": {}}
    # What is damaged is no fault.
    for data in ("{", '{"a": NaN}', '"\\ud800"', "[" * 100_000):
        rows.update(data=data)
        assert api.get(address).status_code == 200
    rows.update(format="pickle", data="evil")
    assert api.get(address).json() == {"format": "pickle", "value": None, "carried": {}}
    rows.delete()
    assert api.get(address).status_code == 404


def test_steps_have_their_results(full, api):
    """A pickle is never opened (G14)."""
    url = f"instances/{full[State.FINISHED].uuid}/steps"
    done, asleep, unknown = api.get(url).json()["results"]
    assert (done["name"], done["attempt"], done["is_done"]) == (MARKUP, 1, True)
    assert done["value"] == {"said": MARKUP}
    assert (asleep["is_done"], asleep["finished"], asleep["value"]) == (False, None, None)
    assert asleep["until"] > asleep["started"]
    assert (unknown["is_done"], unknown["finished"]) == (False, None)
    Step.objects.update(format="pickle", data="evil")
    assert {step["value"] for step in api.get(url).json()["results"]} == {None}


def test_a_response_as_it_is(full, api, media):
    """Its headers, also for types that are no type, are shown in tests/views/test_bodies.py."""
    details = {"content_type": "image/png", "size": 256}
    instance = full.finished(data=BYTES, **details)
    answer = api.get(f"instances/{instance.uuid}/response", accept="image/webp")
    assert (answer.status_code, answer.body) == (200, BYTES)
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    (media / "atp").mkdir()
    (media / "atp" / "large").write_bytes(BYTES)
    instance = full.finished(file="atp/large", data=None, **details)
    assert api.get(f"instances/{instance.uuid}/response").body == BYTES
    gone = full.finished(file="atp/gone", data=None, **details)
    answer = api.get(f"instances/{gone.uuid}/response")
    assert (answer.status_code, problem(answer)) == (404, "not-found")


def test_no_response(full, api):
    """G13."""
    for state in (State.RUNNING, State.FAILED, State.ACCEPTED):
        for part in ("response", "files/0"):
            answer = api.get(f"instances/{full[state].uuid}/{part}")
            assert (answer.status_code, problem(answer)) == (404, "not-found"), (state, part)
        assert api.get(f"instances/{full[state].uuid}/files").json()["results"] == []
    for number in ("1", "-1", "x", "1.0", "%D9%A3", "9" * 100):
        answer = api.get(f"instances/{full[State.FINISHED].uuid}/files/{number}")
        assert (answer.status_code, problem(answer)) == (404, "not-found"), number


def test_files(full, api, media):
    instance = full[State.FINISHED]
    [entry] = api.get(f"instances/{instance.uuid}/files").json()["results"]
    assert (entry["number"], entry["name"], entry["content_type"]) == (0, MARKUP, "text/html")
    stored = media / instance.response.files[0]["path"]
    stored.parent.mkdir(parents=True)
    stored.write_bytes(BYTES)
    answer = api.get(entry["url"])
    assert (answer.status_code, answer.body) == (200, BYTES)
    assert answer.headers["Content-Disposition"].startswith("attachment")
