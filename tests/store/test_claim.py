"""The store contract: claim."""

import random
from datetime import timedelta

import pytest

from atp.exceptions import LeaseLost
from atp.models import Task
from atp.states import Event, Reason, State
from atp.store.values import Move

from .world import ONE, SECOND, THREE, TWO, registration


def keys(claimed):
    return [each.instance for each in claimed]


def test_it_brings_all_that_the_attempt_needs(world):
    of = registration(timeout=timedelta(seconds=9), max_retries=4)
    [key] = world.enqueue(type=of, identifier="id", collection="esa", priority=3)
    host = world.host()
    [claimed] = host.claim()
    instance = world.get(key)
    assert (claimed.instance, claimed.uuid, claimed.type) == (key, instance.uuid, ONE)
    assert (claimed.attempt, claimed.lost, claimed.retries) == (1, 0, 0)
    assert (claimed.identifier, claimed.collection, claimed.priority) == ("id", "esa", 3)
    parameters = claimed.parameters
    assert (parameters.timeout, parameters.max_retries) == (timedelta(seconds=9), 4)
    assert (parameters.backoff, parameters.backoff_max) == (5 * SECOND, timedelta(hours=1))
    assert claimed.inputs.data == "{}"
    record = world.log(key)[-1]
    assert (record.event, record.state, record.attempt) == (Event.CLAIM, State.SCHEDULED, 1)
    assert (record.who, record.time) == (str(host.row), claimed.time)
    assert (instance.state, instance.attempt, host.holds()) == (State.SCHEDULED, 1, {key})


def test_what_is_claimed_is_not_claimed_again(world):
    """G3."""
    world.enqueue(5)
    first, second = world.host(), world.host()
    assert len(first.claim(3)) == 3
    assert len(second.claim(3)) == 2
    assert first.claim(3) == []
    assert not first.holds() & second.holds()


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 6])
def test_the_limit_holds(world, limit):
    world.enqueue(3, type=ONE)
    world.enqueue(2, type=TWO)
    assert len(world.host().claim(limit)) == min(limit, 5)


def test_what_is_dated_in_the_future_waits(world):
    now = world.store.now()
    [past] = world.enqueue(due=now - SECOND)
    [future] = world.enqueue(due=now + timedelta(minutes=1), priority=100)
    assert keys(world.host().claim()) == [past]
    Task.objects.filter(pk=future).update(due_at=now)
    assert keys(world.host().claim()) == [future]


def test_only_the_types_that_are_named(world):
    [one] = world.enqueue(type=ONE)
    world.enqueue(type=TWO)
    [three] = world.enqueue(type=THREE)
    assert set(keys(world.host().claim(types=(ONE, THREE, "unknown")))) == {one, three}
    assert world.host().claim(types=("unknown",)) == []
    assert world.store.claim(world.host().uuid, [], 10) == []


class TestOrder:
    """G8: by priority, then due time, then order of enqueueing."""

    def test_by_priority_then_due_time_then_key(self, world):
        now = world.store.now()
        expected = []
        for priority in (100, 5, 0, -1, -100):
            for minutes in (60, 30, 1):
                due = now - timedelta(minutes=minutes)
                expected.append((priority, due))
        shuffled = random.sample(expected, len(expected))
        made = {}
        for priority, due in shuffled:
            made[priority, due] = world.enqueue(2, priority=priority, due=due)
        wanted = [key for each in expected for key in made[each]]
        assert keys(world.host().claim()) == wanted

    def test_in_small_claims_too(self, world):
        wanted = [*world.enqueue(3, priority=1), *world.enqueue(4)]
        host = world.host()
        found = []
        while claimed := host.claim(2):
            found += keys(claimed)
        assert found == wanted

    def test_lanes_of_one_type_keep_their_order_beside_each_other(self, world):
        made = {name: [] for name in ("a", "b", "c")}
        for name in random.choices("abc", k=30):
            made[name] += world.enqueue(collection=name)
        found = world.host().claim()
        for name, wanted in made.items():
            assert keys(c for c in found if c.collection == name) == wanted

    def test_types_keep_their_order_beside_each_other(self, world):
        made = {of: world.enqueue(10, type=of) for of in (ONE, TWO)}
        found = world.host().claim(15)
        for of, wanted in made.items():
            mine = keys(c for c in found if c.type == of)
            assert mine == wanted[: len(mine)]

    @pytest.mark.parametrize("event", [Event.RELEASE, Event.EXPIRE])
    def test_a_task_handed_back_keeps_its_place(self, world, event):
        """A claim does not touch the due time."""
        wanted = world.enqueue(4)
        host = world.host()
        [first] = host.claim(1)
        host.move(first, Event.START, event)
        assert keys(host.claim()) == wanted


class TestShares:
    """G9: what waits in one Type does not lie in front of another."""

    def test_types_get_even_shares(self, world):
        world.enqueue(50, type=ONE, priority=100)
        world.enqueue(50, type=TWO)
        world.enqueue(50, type=THREE)
        found = [c.type for c in world.host().claim(30)]
        assert {of: found.count(of) for of in (ONE, TWO, THREE)} == {ONE: 10, TWO: 10, THREE: 10}

    def test_what_one_type_leaves_another_takes(self, world):
        world.enqueue(2, type=ONE)
        world.enqueue(50, type=TWO)
        found = [c.type for c in world.host().claim(20)]
        assert (found.count(ONE), found.count(TWO)) == (2, 18)

    def test_single_claims_take_turns(self, world):
        for of in (ONE, TWO, THREE):
            world.enqueue(5, type=of)
        host = world.host()
        found = [host.claim(1)[0].type for _ in range(9)]
        assert {of: found.count(of) for of in (ONE, TWO, THREE)} == {ONE: 3, TWO: 3, THREE: 3}


class TestLease:
    """Only a daemon with a live lease takes anything."""

    def test_a_daemon_without_a_row_holds_nothing(self, world):
        world.enqueue()
        host = world.host()
        world.store.leave(host.uuid)
        before = world.snapshot()
        with pytest.raises(LeaseLost):
            host.claim()
        assert world.snapshot() == before

    def test_a_lease_that_has_run_out_takes_nothing(self, world):
        if world.store.lock_folder is not None:
            pytest.skip("here the lease is a file lock, which does not run out")
        world.enqueue()
        host = world.host()
        host.lose_lease()
        before = world.snapshot()
        with pytest.raises(LeaseLost):
            host.claim()
        assert world.snapshot() == before


class TestStartBefore:
    def test_what_is_too_late_is_missed_instead_of_claimed(self, world):
        now = world.store.now()
        [late] = world.enqueue(start_before=now - SECOND)
        [early] = world.enqueue(start_before=now + timedelta(minutes=1))
        host = world.host()
        assert keys(host.claim()) == [early]
        missed = world.get(late)
        assert (missed.state, missed.reason, missed.attempt) == (State.FAILED, Reason.MISSED, 0)
        assert world.events(late) == [Event.ENQUEUE, Event.FAIL]
        assert world.log(late)[-1].who == str(host.row)

    def test_what_has_been_started_in_time_is_not_missed_later(self, world):
        """G2: a retry is not a first start."""
        [key] = world.enqueue(start_before=world.store.now() + timedelta(minutes=1))
        host = world.host()
        [claimed] = host.claim()
        host.move(claimed, Event.START, Event.RETRY)
        late = world.store.now() - SECOND
        Task.objects.filter(pk=key, start_before__isnull=False).update(start_before=late)
        assert keys(host.claim()) == [key]

    def test_what_was_handed_back_unstarted_can_still_be_missed(self, world):
        [key] = world.enqueue(start_before=world.store.now() + timedelta(minutes=1))
        host = world.host()
        [claimed] = host.claim()
        host.move(claimed, Event.RELEASE)
        Task.objects.filter(pk=key).update(start_before=world.store.now() - SECOND)
        assert host.claim() == []
        assert world.get(key).reason == Reason.MISSED

    def test_a_redriven_one_is_not_missed_again(self, world):
        [key] = world.enqueue(start_before=world.store.now() - SECOND)
        host = world.host()
        assert host.claim() == []
        assert world.store.record([Move(event=Event.REDRIVE, instance=key)]) == []
        assert keys(host.claim()) == [key]
