"""The judge finds what is broken: a check that cannot fail would be worth nothing."""

from dataclasses import replace

import pytest

from atp.states import Event

from . import judge
from .feed import Enqueued, Fate
from .forged import Forger, evidence, found, only, spoilt, whole


def test_what_is_whole_is_kept():
    plain = Forger("two", "chaos.short").begin().finish()
    assert found(evidence(whole(), plain)) == {}


def test_messages_are_tolerated_anywhere():
    forger = whole()
    message = replace(forger.log[1], event="", state="", message="written too late", attempt=1)
    forger.log = [message, *(entry for each in forger.log for entry in (each, message))]
    assert found(evidence(forger)) == {}


# Lost (G1, G2)


def test_committed_and_not_there():
    given = evidence(whole())
    given.enqueued["gone"] = Enqueued("gone", "chaos.sleep", Fate.COMMITTED)
    given.enqueued["who knows"] = Enqueued("who knows", "chaos.sleep", Fate.UNKNOWN)
    assert only(given, judge.lost) == ["gone was committed, and is not there"]


def test_rolled_back_and_there():
    given = evidence(whole())
    given.enqueued["one"] = replace(given.enqueued["one"], fate=Fate.ROLLED_BACK)
    assert only(given, judge.lost) == ["one was rolled back, and is there"]


def test_there_and_never_enqueued():
    assert only(evidence(whole(), enqueued={}), judge.lost)


def test_executed_and_not_there():
    given = evidence(whole())
    given.executions["ghost"] = given.executions["one"]
    assert only(given, judge.lost) == ["was executed, and is not there"]


def test_without_an_end():
    forger = Forger(has_task=True).begin()
    assert only(evidence(forger), judge.lost) == ["has come to no end: RUNNING"]


@pytest.mark.parametrize("forger", [Forger().begin(), whole()])
def test_task_row_that_is_missing_or_left(forger):
    is_over = forger.log[-1].event == Event.FINISH
    forger.facts["has_task"] = is_over
    told = f"{forger.log[-1].state}, Task rows: {int(is_over)}"
    assert told in only(evidence(forger), judge.lost)


def test_task_row_of_nobody():
    assert only(evidence(whole(), strange_tasks=1), judge.lost)


# Overlaps (G3)


def test_overlap_by_the_order_of_the_lines():
    """A handler that was at work after another had begun, whatever its clock said."""
    forger = whole()
    lines = forger.lines
    late = next(line for line in lines if line.event == "tick" and line.attempt == 1)
    given = evidence(forger, lines=[*(line for line in lines if line is not late), late])
    assert "attempt 2 began before the end of 1" in only(given, judge.overlaps)[0]


def test_overlap_by_the_clock():
    forger = whole()
    began = next(line for line in forger.lines if line.attempt == 2).time
    forger.lines[1] = replace(forger.lines[1], time=began + 0.005)
    assert "attempt 2 began before the end of 1" in only(evidence(forger), judge.overlaps)[0]


def test_overlap_with_a_child_that_was_left_behind():
    forger = whole()
    forger.say("child", attempt=1, pid=77)
    assert len(only(evidence(forger), judge.overlaps)) == 2


def test_overlap_with_one_that_is_not_the_last_before():
    """A long attempt is held against all that begin before its end."""
    forger = Forger().begin().lose().begin(pid=2).lose(pid=2).begin(pid=3).finish(pid=3)
    forger.say("tick", attempt=1)
    assert len(only(evidence(forger), judge.overlaps)) == 4


def test_attempt_that_was_entered_twice():
    forger = Forger().begin()
    forger.say("start", pid=2)
    assert only(evidence(forger.finish()), judge.overlaps) == ["attempt 1 was entered 2 times"]


# The log (G6)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "claim from None"),
        (1, "start from State.ACCEPTED"),
        (2, "expire of attempt 1"),
        (3, "claim from State.RUNNING"),
        (5, "finish from State.SCHEDULED"),
        (6, "the log ends in RUNNING"),
    ],
)
def test_missing_entry(number, told):
    forger = whole()
    del forger.log[number]
    words = found(evidence(forger))["illegal"]
    if number == 2:  # an attempt may expire before it was started, but then it is not charged
        assert words == ["restarts is 1, by the log 0"]
    else:
        assert told.replace("State.", "") in words[0].replace("State.", "")


@pytest.mark.parametrize("number", range(7))
def test_doubled_entry(number):
    forger = whole()
    forger.log.insert(number, forger.log[number])
    assert "illegal" in found(evidence(forger))


@pytest.mark.parametrize("name", ["attempt", "restarts", "retries", "lost"])
def test_counter_that_the_log_does_not_bear_out(name):
    forger = whole()
    forger.facts[name] = 3
    assert any(words.startswith(f"{name} is 3") for words in found(evidence(forger))["illegal"])


def test_entry_of_another_attempt_or_state():
    assert found(evidence(spoilt(whole(), 5, attempt=1)))["illegal"]
    assert only(evidence(spoilt(whole(), 5, state="PAUSED")), judge.illegal)


def test_executed_and_never_claimed():
    forger = whole()
    forger.say("start", attempt=9)
    assert only(evidence(forger), judge.illegal) == ["attempt 9 was executed, and never claimed"]


@pytest.mark.parametrize(("number", "by"), [(4, -5), (5, +5), (6, -5)])
def test_time_that_cannot_be(number, by):
    forger = whole()
    forger = spoilt(forger, number, time=forger.log[number].time + by)
    assert "untrue" in found(evidence(forger))
