"""The count of charges and rows, held against those made by hand (G17)."""

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.models import LogRecord
from atp.rows.log import Kind
from atp.states import Event

from ..app.tasks_chaos import steps
from .record import Line, executions
from .steps import broken_of


class Case:
    """An Instance that has FINISHED under its second attempt; ``lines`` are its record."""

    def __init__(self, world):
        queue.register_all()
        self.instance = steps.enqueue(path="nowhere", seconds=0)
        host = world.host("chaos.steps")
        for event in (Event.RELEASE, Event.FINISH):
            [case] = host.claim()
            host.move(case, Event.START, event)
        self.lines = []

    def say(self, event, attempt, nonce=""):
        facts = {"instance": str(self.instance.uuid), "attempt": attempt, "nonce": nonce}
        self.lines.append(Line(place=len(self.lines), event=event, time=0, pid=1, **facts))

    def book(self, attempt):
        Group.objects.create(name=f"{self.instance.uuid}/{attempt}")

    def log(self, attempt):
        LogRecord.objects.create(
            instance=self.instance,
            time=self.instance.created,
            kind=Kind.STEP,
            attempt=attempt,
            level=30,
            detail="charge",
        )

    def broken(self):
        return list(broken_of(executions(self.lines)))


@pytest.fixture
def case(world):
    """One that was charged once, and has its row."""
    case = Case(world)
    case.say("charged", 1)
    case.say("paid", 2, "1")
    case.book(2)
    return case


def test_all_is_well(case):
    assert case.broken() == []


def test_a_repetition_in_the_log(case):
    case.lines.pop()
    case.say("charged", 2)
    case.say("paid", 2, "2")
    case.log(2)
    assert case.broken() == []


def test_a_repetition_of_which_the_log_says_nothing(case):
    case.lines.pop()
    case.say("charged", 2)
    [words] = case.broken()
    assert "charged again by {2}" in words


def test_a_result_that_was_not_that_of_the_last_charge(case):
    case.lines.pop()
    case.say("paid", 2, "9")
    [words] = case.broken()
    assert "was told of the charge of {'9'}" in words


def test_a_row_too_many_and_one_too_few(case):
    case.book(1)
    [words] = case.broken()
    assert "has 2 rows" in words
    Group.objects.all().delete()
    [words] = case.broken()
    assert "has 0 rows" in words


def test_no_charge(case):
    case.lines.clear()
    [words] = case.broken()
    assert "was not charged" in words


def test_two_charges_of_one_attempt(case):
    case.say("charged", 1)
    [words] = case.broken()
    assert "charged twice in [1]" in words
