"""The store contract: claims from a queue of everything at once (G8, G9)."""

import random
from collections import Counter
from datetime import timedelta

import pytest
from django.db import transaction

from atp.models import Task
from atp.states import Event, Reason, State

from .world import ONE, SECOND, THREE, TWO

TYPES = (ONE, TWO, THREE)


def fill(world, count):
    """Enqueue a few at a time: of all Types, priorities, lanes and times."""
    now = world.store.now()
    for _ in range(count):
        world.enqueue(
            random.choice([1, 1, 3]),
            type=random.choice(TYPES),
            priority=random.choice([-100, -1, 0, 0, 1, 100]),
            collection=random.choice(["", "esa"]),
            due=now + random.choice([-60, -30, -1, 3600]) * SECOND,
        )


def due(world, type, collection):
    """The keys of what is due in a lane, in claiming order."""
    rows = Task.objects.due(world.store.now())
    rows = rows.filter(type__identifier=type, collection=collection)
    return list(rows.in_claiming_order().values_list("pk", flat=True))


@pytest.mark.parametrize("limit", [1, 4, 7, 100])
def test_each_lane_in_its_order_and_to_even_shares(world, limit):
    fill(world, 40)
    lanes = [(type, collection) for type in TYPES for collection in ("", "esa")]
    waiting = {lane: due(world, *lane) for lane in lanes}
    host = world.host()
    while any(waiting.values()):
        claimed = host.claim(limit)
        assert len(claimed) == min(limit, sum(map(len, waiting.values())))
        check_shares(Counter(each.type for each in claimed), waiting, limit)
        for lane, keys in waiting.items():
            own = [each.instance for each in claimed if (each.type, each.collection) == lane]
            assert own == keys[: len(own)]
            del keys[: len(own)]
    assert host.claim(limit) == []


def check_shares(counts, waiting, limit):
    """Nobody gets more than a share before everybody else has got one."""
    of_type = {
        type: sum(len(k) for lane, k in waiting.items() if lane[0] == type) for type in TYPES
    }
    share = limit // sum(map(bool, of_type.values()))
    if max(counts.values()) > share + 1:
        for type, number in of_type.items():
            assert counts[type] >= min(share, number)


def test_what_is_dated_in_the_future_hides_nothing_of_any_lower_priority(world):
    later = world.store.now() + timedelta(hours=1)
    for priority in range(0, 60, 2):
        world.enqueue(2, priority=priority, due=later)
    wanted = [key for priority in (41, 1, -5) for key in world.enqueue(2, priority=priority)]
    assert [each.instance for each in world.host().claim()] == wanted


def test_what_is_too_late_hides_nothing_behind_it(world):
    late = world.store.now() - SECOND
    missed = world.enqueue(7, start_before=late, priority=5)
    [key] = world.enqueue()
    host = world.host()
    found = []
    # A store may take more than one look, but says when it has found something to do.
    for _ in range(20):
        found += host.claim(1)
    assert [each.instance for each in found] == [key]
    assert {world.get(each).reason for each in missed} == {Reason.MISSED}
    assert {world.state(each) for each in missed} == {State.FAILED}


def test_what_a_rolled_back_claim_took_is_claimed_again(world):
    """G7: a claim is part of the caller's transaction."""
    keys = world.enqueue(3)
    host = world.host()
    before = world.snapshot()
    with transaction.atomic():
        assert len(host.claim()) == 3
        transaction.set_rollback(True)
    assert world.snapshot() == before
    claimed = host.claim()
    assert [(each.instance, each.attempt) for each in claimed] == [(key, 1) for key in keys]
    host.move(claimed[0], Event.START)
