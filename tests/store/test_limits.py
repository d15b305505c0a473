"""Limits of Types and lanes: what is claimed ahead of them, rates, and of each lane of a Type."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from atp.models import Limit, Task
from atp.states import Event

from ..helpers import DEADLINE, at_once, wait_for
from .internals import Bucket
from .world import HOUR, ONE, TWO, registration, scope

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def collections(claimed):
    return Counter(task.collection for task in claimed)


def bucket(*, after, **limit):
    """Look at a rate of which everything was taken, so many seconds after that."""
    row = Limit(refilled=NOW, tokens=0.0, **limit)
    return Bucket.of(row, ONE, NOW + timedelta(seconds=after))


class TestAhead:
    @pytest.mark.parametrize(
        "limit", [{"max_running": 1000}, {"per_second": 1e5, "burst": 10_000, "rate": "100000/s"}]
    )
    def test_what_is_far_from_its_limit_is_claimed_as_what_has_none(self, world, limit):
        world.enqueue(200)
        world.store.control.limit(scope(ONE), **limit)
        host = world.host()
        host.claim(1, [ONE], free=1)
        assert len(host.claim(150, [ONE], free=2)) == 150

    @pytest.mark.parametrize(("free", "sizes"), [(1, [5, 0]), (2, [5, 2, 2, 1, 0])])
    def test_each_daemon_has_its_part_and_more_only_for_free_workers(self, world, free, sizes):
        """G9: what one holds ahead leaves the others what they can run, and other Types theirs."""
        world.enqueue(40)
        world.store.control.limit(scope(ONE), max_running=10)
        first, second = world.host(), world.host()
        if free == 1:
            assert len(second.claim(30, [ONE], free=1)) == 5
        assert [len(first.claim(30, [ONE], free=free)) for _ in sizes] == sizes
        world.enqueue(10, type=TWO)
        assert first.claim(20, [ONE], free=0) == []
        assert len(first.claim(20, [ONE, TWO], free=free)) == 10

    def test_a_type_and_a_lane_of_it(self, world):
        world.enqueue(50, collection="a")
        world.enqueue(50, collection="b")
        world.store.control.limit(scope(ONE), max_running=40)
        world.store.control.limit(scope(ONE, "a"), max_running=3)
        host = world.host()
        found = collections(task for _ in range(6) for task in host.claim(10, [ONE], free=2))
        assert found == {"a": 3, "b": 37}

    def test_lanes_that_bind_are_claimed_beside_those_that_do_not(self, world):
        for name in ("wide", "narrow", "other"):
            world.enqueue(50, collection=name)
        world.store.control.limit(scope(ONE, "wide"), max_running=100)
        world.store.control.limit(scope(ONE, "narrow"), max_running=1)
        host, _ = world.host(), world.host()
        found = collections(task for _ in range(3) for task in host.claim(30, [ONE], free=2))
        assert found["narrow"] == 1
        assert found["wide"] >= 30
        assert found["other"] >= 10

    def test_by_weight_beside_another_type(self, world):
        """G9."""
        world.enqueue(400)
        world.enqueue(400, type=TWO)
        world.store.control.limit(scope(ONE), max_running=1000, weight=3.0)
        world.store.control.limit(scope(TWO), max_running=1000)
        host, found = world.host(), Counter()
        for _ in range(10):
            found.update(task.type for task in host.claim(40, [ONE, TWO], free=2))
        assert found.total() == 400
        assert 260 <= found[ONE] <= 340


@pytest.mark.django_db(transaction=True)
def test_two_who_set_the_first_at_once_both_set_theirs(world):
    """G13."""
    world.store.types.register([registration()])
    for name in "abc":
        limit = partial(world.store.control.limit, scope(ONE, name))
        at_once(partial(limit, max_running=5), partial(limit, max_waiting=7))
    found = Limit.objects.values_list("max_running", "max_waiting")
    assert list(found) == [(5, 7)] * 3


class TestRates:
    def test_who_comes_late_for_a_token_loses_nothing(self):
        """Or a rate without a burst could never be reached."""
        found = bucket(after=0.25, per_second=5.0, burst=1)
        assert (found.room, found.tokens) == (1, pytest.approx(1.25))
        # But after a pause no more than the burst.
        assert bucket(after=3600, per_second=5.0, burst=3).room == 3
        seldom = bucket(after=3600, per_second=0.1, burst=1)
        assert (seldom.room, seldom.tokens) == (1, pytest.approx(1.01))

    def test_of_a_high_rate_some_are_started_together(self):
        """Daemons take turns fifty times a second, and not for each token."""
        assert bucket(after=0.005, per_second=1000.0, burst=100).room == 0
        assert bucket(after=0.005, per_second=1000.0, burst=100).seconds == pytest.approx(0.015)
        assert bucket(after=0.02, per_second=1000.0, burst=100).room == 20
        assert bucket(after=0.02, per_second=50.0, burst=5).room == 1

    def test_what_was_not_started_gives_its_token_back(self, world):
        world.enqueue(10, collection="a")
        limits = [
            world.store.control.limit(at, per_second=0.001, burst=6, rate="1/1000s")
            for at in (scope(ONE), scope(ONE, "a"), scope(ONE, "b"))
        ]
        host = world.host()
        host.claim(1, [ONE], free=1)
        assert len(host.claim(10, [ONE], free=1)) == 5
        world.store.limits.give_back([(ONE, "a")] * 4)
        for limit in limits:
            limit.refresh_from_db()
        assert [limit.tokens for limit in limits] == pytest.approx([4, 4, 0], abs=0.1)
        world.store.limits.give_back([(ONE, "a")] * 4)
        limits[0].refresh_from_db()
        assert limits[0].tokens == 6


# ``max_running_per_collection``: the limit of each lane of a Type, declared by its code


@pytest.fixture
def each(world):
    """Declare how many of each collection of ONE may run."""

    def declare(count=1, **more):
        world.store.types.register([registration(ONE), registration(TWO)])
        world.store.control.declare({ONE: {"max_running_per_collection": count, **more}})

    return declare


@pytest.mark.parametrize(("count", "max_running"), [(1, None), (3, None), (2, 3)])
def test_so_many_of_each_and_no_more_of_the_whole_type(world, each, count, max_running):
    each(count, max_running=max_running)
    for name in ("a", "b", "c"):
        world.enqueue(5, collection=name)
    host = world.host()
    found = collections(task for _ in range(4) for task in host.claim(20, [ONE]))
    assert found.total() == (max_running or 3 * count)
    assert max(found.values()) <= count


def test_lanes_take_turns_and_only_for_workers_that_are_free(world, each):
    """G9: each of many comes before one comes again.

    What is claimed ahead would keep a lane from daemons that can run it.
    """
    each()
    for number in range(9):
        world.enqueue(4, collection=f"lane {number}")
    host, found = world.host(), Counter()
    assert host.claim(20, [ONE], free=0) == []
    other = world.host()
    ahead = other.claim(20, [ONE], free=3)
    assert len(ahead) == 3
    for task in ahead:
        other.move(task, Event.RELEASE)
    for _ in range(9):
        [task] = host.claim(1, [ONE])
        found[task.collection] += 1
        host.move(task, Event.START, Event.FINISH)
    assert set(found.values()) == {1}


def test_what_is_due_later_or_held_or_full_is_stepped_over(world, each):
    """And an operator's limit of a lane goes before."""
    each()
    later = world.store.now() + HOUR
    for number in range(20):
        world.enqueue(collection=f"a {number}", due=later)
    world.enqueue(50, collection="b")
    world.enqueue(collection="c", priority=5, due=later)
    world.enqueue(50, collection="c")
    for name in ("held", "more", "z"):
        world.enqueue(5, collection=name)
    world.store.control.shut(scope(ONE, "held"), "hold")
    world.store.control.limit(scope(ONE, "more"), max_running=3)
    host = world.host()
    found = collections(task for _ in range(8) for task in host.claim(2, [ONE]))
    assert found == {"b": 1, "c": 1, "more": 3, "z": 1}


def test_a_daemon_is_not_told_that_work_is_due_which_it_cannot_claim(world, each):
    """Or it would ask on and on."""
    each()
    world.enqueue(collection="b", due=world.store.now() + timedelta(minutes=10))
    host = world.host()

    def due():
        return world.store.daemons.outlook([ONE], daemon=host.uuid).due

    assert 500 < due() < 700
    world.enqueue(3, collection="a")
    assert due() <= 0
    host.claim(20, [ONE])
    # PostgreSQL looks at the lanes of such a Type together: that one is due later is not told.
    assert due() is None or due() > 500
    world.enqueue(collection="c")
    assert due() <= 0


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_never_more_than_that_under_three_claimers(world, each):
    """G3: each counts what is held at every claim of its own, and ends some again."""
    each(2)
    names = ["a", "b", "c", ""]
    for name in names:
        world.enqueue(8, collection=name)
    hosts = [world.host() for _ in range(3)]

    def work(host):
        tasks = host.claim(4, [ONE])
        counts = collections(Task.objects.claimed())
        assert max(counts.values(), default=0) <= 2, counts
        for task in tasks:
            host.move(task, Event.START, Event.FINISH)
        return not Task.objects.exists()

    works = [partial(wait_for, partial(work, host)) for host in hosts]
    assert at_once(*works, timeout=3 * DEADLINE) == [True] * 3
