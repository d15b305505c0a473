"""What is claimed ahead of limits, and what tokens of a rate do."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from atp.models import Limit
from atp.store.buckets import Bucket

from ..helpers import at_once
from .world import ONE, TWO, registration, scope

NOW = datetime(2026, 11, 23, tzinfo=UTC)


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
        world.store.limit(scope(ONE), **limit)
        host = world.host()
        host.claim(1, [ONE], free=1)
        assert len(host.claim(150, [ONE], free=2)) == 150

    def test_each_daemon_has_its_part(self, world):
        """G9: what one holds ahead leaves the others what they can run."""
        world.enqueue(40)
        world.store.limit(scope(ONE), max_running=10)
        first, second = world.host(), world.host()
        assert len(first.claim(30, [ONE], free=1)) == 5
        assert len(second.claim(30, [ONE], free=1)) == 5
        assert first.claim(30, [ONE], free=1) == []

    def test_beyond_its_part_only_for_free_workers(self, world):
        world.enqueue(40)
        world.store.limit(scope(ONE), max_running=10)
        host, _ = world.host(), world.host()
        sizes = [len(host.claim(30, [ONE], free=2)) for _ in range(5)]
        assert sizes == [5, 2, 2, 1, 0]

    def test_lanes_that_bind_are_claimed_beside_those_that_do_not(self, world):
        for name in ("wide", "narrow", "other"):
            world.enqueue(50, collection=name)
        world.store.limit(scope(ONE, "wide"), max_running=100)
        world.store.limit(scope(ONE, "narrow"), max_running=1)
        host, _ = world.host(), world.host()
        found = Counter()
        for _ in range(3):
            for task in host.claim(30, [ONE], free=2):
                found[task.collection] += 1
        assert found["narrow"] == 1
        assert found["wide"] >= 30
        assert found["other"] >= 10

    def test_a_type_and_a_lane_of_it(self, world):
        world.enqueue(50, collection="a")
        world.enqueue(50, collection="b")
        world.store.limit(scope(ONE), max_running=40)
        world.store.limit(scope(ONE, "a"), max_running=3)
        host = world.host()
        found = Counter()
        for _ in range(4):
            for task in host.claim(100, [ONE], free=2):
                found[task.collection] += 1
        assert found == {"a": 3, "b": 37}

    @pytest.mark.parametrize("other", [{}, {"max_running": 1000}])
    def test_by_weight_beside_another_type(self, world, other):
        """G9: whether the other one has a limit or none."""
        world.enqueue(400)
        world.enqueue(400, type=TWO)
        world.store.limit(scope(ONE), max_running=1000, weight=3.0)
        if other:
            world.store.limit(scope(TWO), **other)
        host = world.host()
        found = Counter()
        for _ in range(10):
            for task in host.claim(40, [ONE, TWO], free=2):
                found[task.type] += 1
        assert found.total() == 400
        assert 260 <= found[ONE] <= 340


@pytest.mark.django_db(transaction=True)
class TestSetting:
    def test_two_who_set_the_first_at_once_both_set_theirs(self, world):
        """G13."""
        world.store.register([registration()])
        for name in "abc":
            lane = scope(ONE, name)
            at_once(
                partial(world.store.limit, lane, max_running=5),
                partial(world.store.limit, lane, max_waiting=7),
            )
        found = Limit.objects.values_list("max_running", "max_waiting")
        assert list(found) == [(5, 7)] * 3


class TestRates:
    def test_who_comes_late_for_a_token_loses_nothing(self):
        """Or a rate without a burst could never be reached."""
        found = bucket(after=0.25, per_second=5.0, burst=1)
        assert (found.room, found.tokens) == (1, pytest.approx(1.25))

    def test_after_a_pause_no_more_at_once_than_the_burst(self):
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
            world.store.limit(at, per_second=0.001, burst=6, rate="1/1000s")
            for at in (scope(ONE), scope(ONE, "a"), scope(ONE, "b"))
        ]
        host = world.host()
        host.claim(1, [ONE], free=1)
        assert len(host.claim(10, [ONE], free=1)) == 5
        world.store.give_back([(ONE, "a")] * 4)
        for limit in limits:
            limit.refresh_from_db()
        assert [limit.tokens for limit in limits] == pytest.approx([4, 4, 0], abs=0.1)
        world.store.give_back([(ONE, "a")] * 4)
        limits[0].refresh_from_db()
        assert limits[0].tokens == 6
