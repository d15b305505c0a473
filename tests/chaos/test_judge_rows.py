"""The judge of what transactional Types write, held against evidence made by hand."""

import pytest

from atp.states import Event

from .forged import Forger, evidence, found, only
from .judge import not_once
from .kinds import ROW


def lost_once():
    """One that was lost at its first attempt, and finished at its second."""
    return Forger(type=ROW).begin().lose().begin(pid=2).finish(pid=2)


def test_one_row_of_the_attempt_that_finished():
    assert found(evidence(lost_once())) == {}


@pytest.mark.parametrize("there", [[], [1], [1, 2], [2, 2]])
def test_rows_that_are_none_or_too_many(there):
    [words] = only(evidence(lost_once(), rows={"one": there}), not_once)
    assert words == f"FINISHED, with the rows of attempts {there}"


def test_a_row_of_one_that_failed():
    forger = Forger(type=ROW, reason="ERROR").begin()
    forger.say("end", outcome="OperationalError")
    forger.move(Event.FAIL)
    assert found(evidence(forger)) == {}
    [words] = only(evidence(forger, rows={"one": [1]}), not_once)
    assert words == "FAILED, with the rows of attempts [1]"


def test_a_row_of_nobody():
    [words] = only(evidence(lost_once(), rows={"one": [2], "two": [1]}), not_once)
    assert "nobody was to leave rows" in words
