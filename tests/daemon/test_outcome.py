"""From an outcome and a budget to a change."""

from datetime import timedelta

import pytest

from atp.daemon.outcome import Kind, Outcome, change
from atp.states import Event, Reason
from tests.samples import claimed, parameters

TASK = claimed(1)._replace(
    parameters=parameters(
        max_retries=2, backoff=timedelta(seconds=4), backoff_max=timedelta(minutes=1)
    )
)


def test_finished():
    made = change(Outcome(Kind.FINISHED), TASK, who="me")
    assert (made.event, made.instance, made.attempt, made.who) == (Event.FINISH, 1, 1, "me")


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR, Kind.INTERRUPTED])
def test_retries_left(kind):
    made = change(Outcome(kind, "why"), TASK)
    assert made.event == Event.RETRY
    assert timedelta(seconds=2) <= made.delay <= timedelta(seconds=4)


def test_retry_after():
    assert change(Outcome(Kind.RETRY, "", after=30), TASK).delay == timedelta(seconds=30)


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR])
def test_retries_used_up(kind):
    made = change(Outcome(kind, "why"), TASK._replace(retries=2))
    assert (made.event, made.reason) == (Event.FAIL, Reason.ERROR)
    assert made.message == "why (retries used up: 2 of 2)"


def test_fatal_spends_no_retry():
    made = change(Outcome(Kind.FATAL, "no use"), TASK)
    assert (made.event, made.reason, made.message) == (Event.FAIL, Reason.FATAL, "no use")
