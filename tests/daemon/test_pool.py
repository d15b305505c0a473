"""Handing out: who gets what, what is handed out ahead, what is taken back."""

import pytest

from atp.daemon.pool import hand_out
from atp.daemon.pool import pool as module
from atp.daemon.pool.pace import AHEAD, MAX_AHEAD
from atp.daemon.pool.pool import LOOK_AFTER, STEAL_AFTER, Pool
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel
from atp.daemon.shared.ring import Ring
from atp.daemon.shared.tokens import Tokens
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
    monkeypatch.setattr(hand_out, "uptime", clock)
    return clock


@pytest.fixture
def pool(clock):
    pool = Pool()
    workers = []
    for slot in range(2):
        ours, theirs = Channel.pair()
        ring = Ring(memoryview(bytearray(1024)))
        pool.add(WorkerLink(slot, 100 + slot, ours, Tokens.pipe(), ring))
        workers.append(theirs)
    pool.workers = workers
    yield pool
    for link in pool.links.values():
        link.close()
    for theirs in workers:
        theirs.close()


def hands(pool):
    return [numbers(link) for link in pool.links.values()]


def numbers(link):
    return [instance for instance, _ in link.assigned]


def start(pool, clock, slot):
    """Let a worker start the first task in its hand."""
    link = pool.links[slot]
    assert link.tokens.take(link.first.serial)
    link.first.started = clock.now
    return link


def learn(pool, clock, type, seconds):
    """Let the pool see one task of this Type and run time."""
    pool.put([claimed(10_000, type)])
    pool.hand_out()
    [slot] = [slot for slot, link in pool.links.items() if link.assigned]
    link = start(pool, clock, slot)
    list(pool.workers[slot].drain())
    clock.now += seconds
    pool.ended(link, (10_000, 1), seconds)


def test_unknown_types_are_handed_out_singly(pool):
    assert pool.wanted() == 2
    pool.put([claimed(n) for n in range(4)])
    pool.hand_out()
    assert hands(pool) == [[0], [1]]
    assert [h.claimed.instance for h in pool.waiting] == [2, 3]
    assert pool.wanted() == 0
    assert len(pool) == 4


def test_short_types_are_handed_out_ahead(pool, clock):
    """Nothing is behind more than what is expected to be done soon."""
    learn(pool, clock, "short", 0.010)
    assert pool.wanted() == 2 * 5
    pool.put([claimed(n) for n in range(16)])
    pool.hand_out()
    assert [len(hand) for hand in hands(pool)] == [5, 5]
    assert len(pool.waiting) == 6


def test_what_cannot_be_recorded_counts_as_if_it_were_in_hand(pool, clock):
    """G11: what has run and is not recorded may have to run again."""
    learn(pool, clock, "tests.a", AHEAD / 100)
    assert pool.wanted(behind=0) == pool.wanted() == 200
    assert pool.wanted(behind=50) == 150
    # Who has nothing is not kept waiting for it.
    assert pool.wanted(behind=10_000) == 1
    for link in pool.links.values():
        pool.put([claimed(link.slot, "tests.a")])
        pool.hand_out()
    assert all(hands(pool))
    assert pool.wanted(behind=10_000) == 0


def test_a_worker_that_soon_is_free_gets_the_next(pool, clock):
    """So that it does not wait for a claim between two tasks of some length (G15)."""
    learn(pool, clock, "some", 0.1)
    pool.put([claimed(n, "some") for n in range(3)])
    pool.hand_out()
    assert hands(pool) == [[0], [1]]
    link = start(pool, clock, 0)
    clock.now += 0.04
    pool.hand_out()
    assert hands(pool) == [[0], [1]]
    assert not pool.wanted()
    clock.now += 0.04
    pool.hand_out()
    assert hands(pool) == [[0, 2], [1]]
    assert pool.load(link, clock.now) == pytest.approx(0.12)


def test_all_are_given_enough_when_one_has_little_left(pool, clock):
    """Each message costs its reader time, and so does a claim (G15)."""
    learn(pool, clock, "short", 0.010)
    pool.put([claimed(n) for n in range(24)])
    pool.hand_out()
    links, sent = [start(pool, clock, slot) for slot in range(2)], []
    for _ in range(6):
        clock.now += 0.010
        for slot, link in enumerate(links):
            pool.ended(link, link.first.key, 0.010)
            start(pool, clock, slot)
        before = sum(map(len, hands(pool)))
        pool.hand_out()
        sent.append(sum(map(len, hands(pool))) - before)
    assert sent == [0, 0, 2 * 3, 0, 0, 2 * 3]


@pytest.mark.parametrize(
    ("took", "left"),
    [(0.002, 0.009), (0.010, 0.025), (0.5, 0.030)],
)
def test_more_is_claimed_as_early_as_a_claim_takes_long(pool, clock, took, left):
    """So that no worker waits for one, and each brings as much as it can (G15)."""
    learn(pool, clock, "short", 0.001)
    pool.claim_took(took)
    pool.put([claimed(n) for n in range(100)])
    pool.hand_out()
    assert pool.take_all_waiting() == []
    for slot in range(2):
        start(pool, clock, slot)
    load = pool.load(pool.links[0], clock.now)
    clock.now += load - left - 0.0005
    assert not pool.is_low()
    assert pool.pause(60) == pytest.approx(0.0005)
    clock.now += 0.001
    assert pool.is_low()


def test_nothing_is_put_behind_a_task_that_has_become_long(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(1), claimed(2)])
    pool.hand_out()
    start(pool, clock, 0)
    start(pool, clock, 1)
    assert pool.wanted() > 2
    clock.now += AHEAD + 0.002
    assert not pool.wanted()
    assert not pool.is_low()
    pool.put([claimed(3)])
    pool.hand_out()
    assert hands(pool) == [[1], [2]]


def test_what_lies_unstarted_goes_to_a_worker_that_is_free(pool, clock):
    """No task waits for long behind a running one while another worker is idle (G9, G15)."""
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(n) for n in range(40)])
    pool.hand_out()
    begun = hands(pool)
    assert abs(len(begun[0]) - len(begun[1])) < 10
    first, second = start(pool, clock, 0), pool.links[1]
    while second.assigned:
        start(pool, clock, 1)
        pool.ended(second, second.first.key, 0.001)
    pool.take_back()
    assert numbers(first) == begun[0]
    clock.now += 1.1 * STEAL_AFTER
    pool.take_back()
    assert numbers(first) == begun[0][:1]
    assert [h.claimed.instance for h in pool.waiting] == begun[0][1:]
    pool.hand_out()
    assert numbers(second)[:2] == begun[0][1:3]
    # Whoever was sent them first has no right to start them any more.
    assert not first.tokens.take(2)


def test_what_lies_unstarted_for_very_long_may_go_to_another_daemon(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(n) for n in range(4)])
    pool.hand_out()
    for slot in range(2):
        start(pool, clock, slot)
    clock.now += module.PATIENCE
    pool.take_back()
    assert not pool.overstock()
    clock.now += module.PATIENCE + 0.1
    assert [h.claimed.instance for h in pool.overstock()] == [2, 3]


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
    pool.put([claimed(n) for n in range(3 * MAX_AHEAD)])
    pool.hand_out()
    assert [len(hand) for hand in hands(pool)] == [MAX_AHEAD] * 2
    assert not pool.wanted()


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
    fill(first.channel)
    pool.put([claimed(1)])
    pool.hand_out()
    assert not first.assigned
    assert len(pool.waiting) == 1


def test_when_to_look_again(pool, clock):
    """Soon, while something has begun that nobody was told of; else when more is needed."""
    assert pool.pause(5) == 5
    learn(pool, clock, "some", 1.0)
    pool.put([claimed(1, "some")])
    pool.hand_out()
    assert pool.pause(5) == LOOK_AFTER
    link = start(pool, clock, 0)
    link.first.start_known = True
    assert pool.pause(5) == pytest.approx(1 - 0.6 * AHEAD)
    assert pool.pause(0.1) == 0.1
