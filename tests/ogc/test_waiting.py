"""Executions that wait for their result."""

import pytest

from tests.helpers import wait_for


@pytest.fixture(autouse=True)
def daemon(atpd):
    """A daemon runs the jobs."""
    return atpd()


def test_results_are_the_answer_of_a_process_that_is_waited_for(ogc):
    answer = ogc.execute("ogc.echo", {"inputs": {"text": "hello"}})
    assert (answer.status_code, answer.json()) == (200, {"result": "hello"})
    raw = ogc.execute("ogc.echo", {"inputs": {"text": "hello"}, "response": "raw"})
    assert (raw.headers["Content-Type"], raw.content) == ("text/plain; charset=utf-8", b"hello")
    # The official suite splits a Link header of such an answer at the wrong places.
    asked = ogc.execute("ogc.echo", {"inputs": {"text": "hello"}}, Prefer="respond-sync")
    assert (asked.status_code, asked.json()) == (200, {"result": "hello"})
    assert "Link" not in asked.headers


def test_client_decides_how_long_it_waits(ogc):
    box = {"inputs": {"bbox": [7, 46, 8, 47]}, "outputs": {"height": {}}}
    answer = ogc.execute("ogc.relief", box, Prefer="wait=60")
    assert (answer.status_code, answer.json()) == (200, {"height": 1})
    assert answer.headers["Preference-Applied"] == "wait=60"
    late = ogc.execute("ogc.echo", {"inputs": {"pause": 30}}, Prefer="wait=1")
    assert late.status_code == 201
    assert late.json()["status"] in ("accepted", "running")
    at_once = ogc.execute("ogc.echo", {"inputs": {}}, Prefer="respond-async")
    assert at_once.status_code == 201


def test_failure_of_a_process_that_is_waited_for_is_told(ogc):
    answer = ogc.execute("ogc.echo", {"inputs": {"fail": True}})
    assert answer.status_code == 500
    assert "it was told to fail" in answer.json()["detail"]


def test_running_job_that_is_dismissed_is_dismissed_at_once_and_again(ogc, flag):
    """It cleans up until the flag is there, as DELETE would remove a job that has ended."""
    job = ogc.execute("ogc.tidy", {"inputs": {"flag": str(flag)}}, Prefer="respond-async")
    address = job.headers["Location"]
    wait_for(lambda: ogc.get(address).json()["status"] == "running")
    assert ogc.get(address).json()["message"] == "halfway"
    assert [ogc.delete(address).json()["status"] for _ in range(2)] == ["dismissed"] * 2
    flag.touch()
    wait_for(lambda: ogc.get(address).json().get("finished"))
    assert ogc.get(address).json()["status"] == "dismissed"
