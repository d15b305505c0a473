"""What belongs to an Instance: log, inputs, response, files."""

import pytest

from atp.models import Inputs, Step
from atp.states import State

from ..populated import HOSTILE, MARKUP
from .client import fields, problem

BYTES = bytes(range(256))


def test_the_log_is_oldest_first(full, api):
    """G6: what happened, and who did it."""
    records = api.get(f"instances/{full[State.FAILED].uuid}/log").json()["results"]
    events = [record["event"] for record in records if record["event"]]
    assert events == ["enqueue", "claim", "start", "fail"]
    assert HOSTILE in records[-1]["message"]
    assert records[-1]["level"] == 40


def test_the_log_has_pages(full, api):
    url, seen = f"instances/{full[State.FAILED].uuid}/log?limit=3", []
    while url:
        page = api.get(url).json()
        seen += page["results"]
        url = page["next"]
    assert seen == api.get(f"instances/{full[State.FAILED].uuid}/log").json()["results"]


def test_a_page_key_of_another_list(full, api):
    url = api.get("tasks?limit=1&claimed=true").json()["next"].replace("claimed=true&", "")
    answer = api.get(url.replace("tasks", f"instances/{full[State.FAILED].uuid}/log"))
    assert (answer.status_code, problem(answer)) == (400, "invalid-page-key")
    assert fields(answer) == []


def test_inputs(full, api):
    found = api.get(f"instances/{full[State.FAILED].uuid}/inputs").json()
    assert found == {"format": "json", "value": {"said": MARKUP, "number": 7}, "carried": {}}


def test_a_pickle_is_never_opened(full, api):
    """G14."""
    rows = Inputs.objects.filter(pk=full[State.FAILED].pk)
    rows.update(format="pickle", data="evil")
    found = api.get(f"instances/{full[State.FAILED].uuid}/inputs").json()
    assert found == {"format": "pickle", "value": None, "carried": {}}


@pytest.mark.parametrize("data", ["{", '{"a": NaN}', '{"a": 1e999}', '"\\ud800"', "[" * 100_000])
def test_damaged_inputs_are_no_fault(full, api, data):
    Inputs.objects.filter(pk=full[State.FAILED].pk).update(data=data)
    assert api.get(f"instances/{full[State.FAILED].uuid}/inputs").status_code == 200


def test_steps_have_their_results_and_pages(full, api):
    """A pickle is never opened (G14)."""
    url = f"instances/{full[State.FINISHED].uuid}/steps"
    done, asleep, unknown = api.get(url).json()["results"]
    assert (done["name"], done["attempt"], done["is_done"]) == (MARKUP, 1, True)
    assert done["value"] == {"said": MARKUP}
    assert (asleep["is_done"], asleep["finished"], asleep["value"]) == (False, None, None)
    assert asleep["until"] > asleep["started"]
    assert (unknown["is_done"], unknown["finished"]) == (False, None)
    page = api.get(f"{url}?limit=2").json()
    assert api.get(page["next"]).json()["results"] == [unknown]
    Step.objects.update(format="pickle", data="evil")
    assert {step["value"] for step in api.get(url).json()["results"]} == {None}


def test_inputs_that_are_gone(full, api):
    Inputs.objects.filter(pk=full[State.FAILED].pk).delete()
    assert api.get(f"instances/{full[State.FAILED].uuid}/inputs").status_code == 404


def guards(answer):
    return {
        name: answer.headers[name]
        for name in ("Content-Security-Policy", "Cross-Origin-Resource-Policy")
    }


@pytest.mark.parametrize(
    ("content_type", "disposition"),
    [
        ("image/png", "inline"),
        ("application/json", "inline"),
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/x-atp-signed-pickle", "attachment"),
    ],
)
def test_a_response_as_it_is(full, api, content_type, disposition):
    """G14: never as a page of this site."""
    instance = full.finished(content_type=content_type, data=BYTES, size=256)
    answer = api.get(f"instances/{instance.uuid}/response", accept="image/webp")
    assert (answer.status_code, answer.body) == (200, BYTES)
    assert answer.headers["Content-Type"] == content_type
    assert answer.headers["Content-Disposition"].startswith(disposition)
    assert f"response-{instance.uuid}" in answer.headers["Content-Disposition"]
    assert guards(answer) == {
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


@pytest.mark.parametrize("content_type", ["text/html\r\nSet-Cookie: a=b", "nonsense", "é/é"])
def test_a_content_type_that_is_none(full, api, content_type):
    """G14."""
    instance = full.finished(content_type=content_type, data=BYTES, size=256)
    answer = api.get(f"instances/{instance.uuid}/response")
    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_a_response_in_a_file(full, api, media):
    (media / "atp").mkdir()
    (media / "atp" / "large").write_bytes(BYTES)
    details = {"content_type": "image/png", "data": None, "size": 256}
    instance = full.finished(file="atp/large", **details)
    assert api.get(f"instances/{instance.uuid}/response").body == BYTES
    gone = full.finished(file="atp/gone", **details)
    answer = api.get(f"instances/{gone.uuid}/response")
    assert (answer.status_code, problem(answer)) == (404, "not-found")


@pytest.mark.parametrize("state", [State.RUNNING, State.FAILED, State.ACCEPTED])
def test_no_response(full, api, state):
    for part in ("response", "files/0"):
        answer = api.get(f"instances/{full[state].uuid}/{part}")
        assert (answer.status_code, problem(answer)) == (404, "not-found")
    assert api.get(f"instances/{full[state].uuid}/files").json()["results"] == []


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


@pytest.mark.parametrize("number", ["1", "-1", "x", "1.0", "%D9%A3", "9" * 100])
def test_no_such_file(full, api, number):
    """G13."""
    answer = api.get(f"instances/{full[State.FINISHED].uuid}/files/{number}")
    assert (answer.status_code, problem(answer)) == (404, "not-found")
