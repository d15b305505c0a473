"""Handing out: who gets what, what is handed out ahead, what is taken back."""

import pytest

from atp.daemon import pool as module
from atp.daemon.channel import Channel
from atp.daemon.hand import Link
from atp.daemon.pace import AHEAD, MAX_AHEAD
from atp.daemon.pool import Pool
from tests.samples import claimed

from .test_channel import fill


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "uptime", clock)
    return clock


@pytest.fixture
def pool(clock):
    pool = Pool()
    for slot in range(2):
        ours, theirs = Channel.pair()
        pool.add(Link(slot, 100 + slot, ours, theirs))
    yield pool
    for link in pool.links.values():
        link.close()


def hands(pool):
    return [numbers(link) for link in pool.links.values()]


def numbers(link):
    return [instance for instance, _ in link.hand]


def learn(pool, clock, type, seconds):
    """Let the pool see one task of this Type and run time."""
    pool.put([claimed(10_000, type)])
    pool.hand_out()
    [link] = [link for link in pool.links.values() if link.hand]
    list(link.theirs.drain())
    pool.started(link, (10_000, 1))
    clock.now += seconds
    pool.ended(link, (10_000, 1))


def test_unknown_types_are_handed_out_singly(pool):
    assert pool.wanted() == 2
    pool.put([claimed(n) for n in range(4)])
    pool.hand_out()
    assert hands(pool) == [[0], [1]]
    assert [h.claimed.instance for h in pool.waiting] == [2, 3]
    assert pool.wanted() == 0
    assert len(pool) == 4


def test_short_types_are_handed_out_ahead(pool, clock):
    learn(pool, clock, "short", 0.010)
    assert pool.wanted() == 2 * 5
    pool.put([claimed(n) for n in range(12)])
    pool.hand_out()
    assert [len(hand) for hand in hands(pool)] == [5, 5]
    assert len(pool.waiting) == 2


def test_nothing_waits_behind_a_task_that_has_become_long(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(n) for n in range(6)])
    pool.hand_out()
    first, second = pool.links.values()
    for link in (first, second):
        link.theirs.receive()
        pool.started(link, next(iter(link.hand)))
    for key in list(second.hand):
        pool.ended(second, key)
    list(second.theirs.drain())
    pool.take_back()
    assert len(first.hand) == 3
    clock.now += AHEAD + 0.001
    pool.take_back()
    assert numbers(first) == [0]
    assert [h.claimed.instance for h in pool.waiting] == [2, 4]
    pool.hand_out()
    assert numbers(second) == [2, 4]


def test_what_was_lost_before_runs_alone_and_after_its_start_is_recorded(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(1, lost=1), claimed(2), claimed(3)])
    [reserved] = pool.hand_out()
    assert reserved.claimed.instance == 1
    first, second = pool.links.values()
    assert (numbers(first), numbers(second)) == ([], [2, 3])
    assert len(pool) == 3
    pool.release_reserved((1, 1))
    assert numbers(first) == [1]
    pool.put([claimed(4)])
    pool.hand_out()
    assert numbers(second) == [2, 3, 4]


def test_a_hand_is_never_too_large(pool, clock):
    learn(pool, clock, "short", 0.0)
    pool.put([claimed(n) for n in range(500)])
    pool.hand_out()
    assert [len(hand) for hand in hands(pool)] == [MAX_AHEAD] * 2


def test_overstock_is_handed_back(pool, clock):
    pool.put([claimed(n) for n in range(3)])
    pool.hand_out()
    assert pool.overstock() == []
    clock.now += module.PATIENCE + 0.1
    assert [h.claimed.instance for h in pool.overstock()] == [2]
    assert len(pool) == 2


def test_a_worker_whose_channel_is_full_gets_nothing(pool):
    first, second = pool.links.values()
    second.reserved = object()
    fill(first.ours)
    pool.put([claimed(1)])
    pool.hand_out()
    assert not first.hand
    assert len(pool.waiting) == 1
