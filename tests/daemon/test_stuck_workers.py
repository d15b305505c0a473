"""Workers that start nothing of what they are given (G5)."""

from types import SimpleNamespace

import pytest

from atp.daemon.pool import stuck_workers as module
from atp.daemon.pool.stuck_workers import (
    KILL_AFTER,
    READY_WITHIN,
    TAKE_BACK_AFTER,
    StuckWorkers,
)
from atp.daemon.shared.running_page import NEVER, NOTHING, Page, Running
from tests.samples import claimed

from .test_pool import clock, pool  # noqa: F401 (fixtures)


@pytest.fixture
def hall(pool, monkeypatch):  # noqa: F811
    time = SimpleNamespace(now=0.0, monotonic=lambda: time.now)
    monkeypatch.setattr(module, "time", time)
    page, killed = Page(2), []
    stuck = StuckWorkers(pool, page, lambda link, key, why: killed.append((link.slot, key)))
    pool.remove(1).close()
    return SimpleNamespace(pool=pool, stuck=stuck, time=time, page=page, killed=killed)


def later(hall, seconds):
    hall.time.now += seconds
    hall.stuck.turn()


def test_it_is_relieved_and_then_replaced(hall):
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    later(hall, 0)
    later(hall, TAKE_BACK_AFTER * 0.9)
    assert not hall.pool.waiting
    later(hall, TAKE_BACK_AFTER)
    assert [holding.key for holding in hall.pool.waiting] == [(1, 1)]
    assert hall.pool.wanted() == 0
    hall.pool.hand_out()
    assert hall.pool.waiting  # it gets nothing more
    later(hall, 0)
    assert hall.killed == []
    later(hall, KILL_AFTER)
    later(hall, 0.1)
    assert hall.killed == [(0, NOTHING)]


def test_one_that_did_not_come_to_clear_what_has_ended_is_stuck_too(hall):
    """G5: it was stopped between telling of an end and taking it from the page."""
    hall.page.enter(0, *Running(9, 1, deadline=NEVER, started=0.0))
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    later(hall, 0)
    later(hall, TAKE_BACK_AFTER)
    assert [holding.key for holding in hall.pool.waiting] == [(1, 1)]
    later(hall, 0)
    later(hall, KILL_AFTER)
    assert hall.killed == [(0, (9, 1))]


def test_one_that_has_taken_the_token_and_starts_nothing_is_replaced(hall):
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    assert hall.pool.links[0].tokens.take(hall.pool.links[0].first.serial)
    later(hall, 0)
    later(hall, TAKE_BACK_AFTER)
    assert not hall.pool.waiting
    later(hall, 0)
    later(hall, KILL_AFTER)
    assert hall.killed == [(0, NOTHING)]


def test_one_whose_ends_are_not_read_yet_is_not_stuck(hall):
    """As long as the database cannot record them."""
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    assert hall.pool.links[0].tokens.take(hall.pool.links[0].first.serial)
    assert hall.pool.links[0].ring.write(b"ended")
    later(hall, 0)
    later(hall, KILL_AFTER)
    later(hall, KILL_AFTER)
    assert hall.killed == []


def test_one_that_is_not_ready_gets_nothing_and_has_time(hall):
    """G2: it may have much to load first."""
    hall.pool.links[0].is_starting = True
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    assert hall.pool.waiting
    later(hall, 0)
    later(hall, READY_WITHIN * 0.9)
    assert hall.killed == []
    later(hall, READY_WITHIN)
    assert hall.killed == [(0, NOTHING)]


def test_one_that_retires_gets_nothing_more(hall):
    """G6: or a start would be recorded that never was."""
    hall.pool.links[0].is_retiring = True
    hall.pool.put([claimed(1, lost=1)])
    assert hall.pool.hand_out() == []
    assert (hall.pool.has_free(), hall.pool.wanted()) == (False, 0)


def test_one_that_runs_is_not_stuck(hall):
    hall.pool.put([claimed(1)])
    hall.pool.hand_out()
    hall.page.enter(0, *Running(1, 1, deadline=NEVER, started=0.0))
    later(hall, 0)
    later(hall, 10 * KILL_AFTER)
    assert not hall.pool.waiting
    assert hall.killed == []


def test_one_that_goes_on_is_not_stuck(hall):
    """Each time that it is looked at, it is about to start another."""
    for number in range(20):
        hall.pool.put([claimed(number)])
        hall.pool.hand_out()
        later(hall, TAKE_BACK_AFTER * 0.9)
        assert hall.pool.links[0].tokens.take(hall.pool.links[0].first.serial)
        hall.pool.ended(hall.pool.links[0], hall.pool.links[0].first.key, 0.1)
    assert hall.killed == []
    assert not hall.pool.links[0].is_stuck
