"""From an outcome and a budget to a move."""

import logging
from datetime import timedelta

import pytest

from atp.daemon.shared.outcome import Kind, Outcome, move
from atp.rows.log import signature_in
from atp.states import Event, Reason
from atp.store.misfits import is_misfit
from atp.words import attempt_messages
from tests.samples import claimed, parameters

from ..nonsense import tells

TASK = claimed(1)._replace(
    parameters=parameters(
        max_retries=2, backoff=timedelta(seconds=4), backoff_max=timedelta(minutes=1)
    )
)


def test_finished():
    made = move(Outcome(Kind.FINISHED), TASK, who="me")
    assert (made.event, made.instance, made.attempt, made.who) == (Event.FINISH, 1, 1, "me")


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR, Kind.INTERRUPTED])
def test_retries_left(kind):
    made = move(Outcome(kind, "why"), TASK)
    assert made.event == Event.RETRY
    assert timedelta(seconds=2) <= made.delay <= timedelta(seconds=4)


def test_retry_after():
    assert move(Outcome(Kind.RETRY, "", after=30), TASK).delay == timedelta(seconds=30)


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR])
def test_retries_used_up(kind):
    made = move(Outcome(kind, "why"), TASK._replace(retries=2))
    assert (made.event, made.reason) == (Event.FAIL, Reason.ERROR)
    assert made.message.startswith("why ")
    assert tells(made.message, attempt_messages.retries_used_up(2, 2))


def test_fatal_spends_no_retry():
    made = move(Outcome(Kind.FATAL, "no use"), TASK)
    assert (made.event, made.reason, made.message) == (Event.FAIL, Reason.FATAL, "no use")


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR, Kind.FATAL])
@pytest.mark.parametrize("retries", [0, 2])
def test_the_log_gets_the_class_of_the_exception(kind, retries):
    made = move(Outcome(kind, "why", raised="shop.NoMoney"), TASK._replace(retries=retries))
    assert made.detail == "shop.NoMoney"


def test_a_long_path_of_a_class_is_cut():
    assert move(Outcome(Kind.ERROR, "why", raised="x." * 90), TASK).detail == "x." * 32


def test_inputs_that_do_not_fit_are_deferred():
    """The store makes more of it: when it is due, or that it fails."""
    made = move(Outcome(Kind.MISFIT, "why", signature="1a2b3c4d"), TASK._replace(retries=2))
    assert (made.event, made.message, made.level) == (Event.DEFER, "why", logging.WARNING)
    assert signature_in(made.detail) == "1a2b3c4d"
    assert is_misfit(made)
    assert not is_misfit(move(Outcome(Kind.DEFER, "why", after=1), TASK))
