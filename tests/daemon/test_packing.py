"""Tests of :mod:`atp.daemon.shared.packing`."""

import pickle

import pytest

from atp.daemon.pool.worker_link import Holding
from atp.daemon.shared.outcome import Kind, Outcome
from atp.daemon.shared.packing import packed, packed_end, unpacked, unpacked_end

from ..samples import claimed


def sent(holdings):
    """What arrives at a worker."""
    return list(unpacked(pickle.loads(pickle.dumps(packed(holdings)))))


def arrived(task):
    """What a worker gets of a Task: all but when it was claimed."""
    return task._replace(time=None)


def holdings_of(*tasks):
    held = [Holding(task, 0.0) for task in tasks]
    for serial, holding in enumerate(held, 1):
        holding.serial = serial
    return held


def test_what_arrives_is_what_was_claimed():
    tasks = [claimed(1, "tests.a"), claimed(2, "tests.b"), claimed(3, "tests.a")]
    assert sent(holdings_of(*tasks)) == list(enumerate(map(arrived, tasks), 1))


def test_what_a_type_says_now_counts_and_not_what_it_said_before():
    task = claimed(1, "tests.a")
    changed = task._replace(parameters=claimed(1, "tests.b").parameters)
    assert sent(holdings_of(task)) == [(1, arrived(task))]
    assert sent(holdings_of(changed)) == [(1, arrived(changed))]


def test_what_the_daemon_holds_stays_as_it_is():
    task = claimed(1, "tests.a")
    [holding] = holdings_of(task)
    packed([holding])
    assert holding.claimed == task


@pytest.mark.parametrize("outcome", [None, Outcome(Kind.RETRY, "later")])
def test_the_record_of_an_end(outcome):
    end = 2**40, 3, 1.25, 2.5, outcome
    assert unpacked_end(packed_end(*end)) == end
