"""The parts of an Instance: log, inputs, steps and files.

tests/views/test_bodies.py downloads responses and files, also from the API.
"""

from atp.models import Inputs, Step
from atp.states import State

from ..populated import HOSTILE, MARKUP
from .client import ROOT, problem, refusal


def test_log_is_oldest_first_and_can_be_reversed_and_paged(full, api):
    """Each record says what happened and who did it (G6)."""
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


def test_inputs_and_steps_are_shown_but_a_pickle_is_never_opened(full, api):
    """A pickle has no value in the response, because opening it could run code (G14)."""
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
    url = f"instances/{full[State.FINISHED].uuid}/steps"
    done, asleep, unknown = api.get(url).json()["results"]
    assert (done["name"], done["attempt"], done["is_done"]) == (MARKUP, 1, True)
    assert done["value"] == {"said": MARKUP}
    assert (asleep["is_done"], asleep["finished"], asleep["value"]) == (False, None, None)
    assert asleep["until"] > asleep["started"]
    assert (unknown["is_done"], unknown["finished"]) == (False, None)
    Step.objects.update(format="pickle", data="evil")
    assert {step["value"] for step in api.get(url).json()["results"]} == {None}


def test_missing_responses_and_files_return_404(full, api):
    address = f"instances/{full[State.FINISHED].uuid}/files"
    [entry] = api.get(address).json()["results"]
    assert (entry["number"], entry["name"], entry["content_type"]) == (0, MARKUP, "text/html")
    assert entry["url"].endswith(f"{ROOT}{address}/0")
    for state in (State.RUNNING, State.FAILED, State.ACCEPTED):
        for part in ("response", "files/0"):
            assert refusal(api.get(f"instances/{full[state].uuid}/{part}")) == (404, "not-found"), (
                state,
                part,
            )
        assert api.get(f"instances/{full[state].uuid}/files").json()["results"] == []
    for number in ("1", "-1", "x", "1.0", "%D9%A3", "9" * 100):
        assert refusal(api.get(f"{address}/{number}")) == (404, "not-found"), number
