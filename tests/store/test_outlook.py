"""The store contract: outlook, what there is to do."""

import random
from datetime import timedelta

import pytest

from atp.conf import settings
from atp.states import Event
from atp.store.common import ORMStore

from . import graphs
from .world import ONE, SECOND, TWO

TYPES = (ONE, TWO)


@pytest.mark.parametrize("count", [0, 1, 2, 20])
@pytest.mark.parametrize("earliest", [5, 0, -5])
def test_it_sees_what_the_portable_store_sees(world, count, earliest):
    now = world.store.now()
    for _ in range(count):
        due = now + random.randint(earliest, 60) * timedelta(minutes=1)
        world.enqueue(type=random.choice((*TYPES, "store.other")), priority=random.randint(-2, 2),
                      due=due)  # fmt: skip
    host = world.host()
    seen = world.store.outlook(TYPES, daemon=host.uuid)
    expected = ORMStore(settings.DATABASE).outlook(TYPES, daemon=host.uuid)
    assert (seen.late, seen.lost) == (expected.late, expected.lost) == (False, False)
    if expected.due is None or expected.due > 0:
        assert seen.due == pytest.approx(expected.due, abs=2)
    else:
        assert seen.due <= 0


def test_what_is_late_and_who_is_lost(world):
    world.enqueue(start_before=world.store.now() - SECOND)
    lost, host = world.host(), world.host()
    lost.lose_lease()
    seen = world.store.outlook(TYPES, daemon=host.uuid)
    assert (seen.late, seen.lost) == (True, True)
    world.store.miss()
    world.store.sweep(daemon=host.uuid)
    seen = world.store.outlook(TYPES, daemon=host.uuid)
    assert (seen.late, seen.lost) == (False, False)


def test_what_is_claimed_is_not_to_be_done(world):
    host = world.host()
    assert world.store.outlook(TYPES).due is None
    world.enqueue(2)
    assert world.store.outlook(TYPES).due <= 0
    host.claim()
    assert world.store.outlook(TYPES).due is None
    assert not world.store.outlook(TYPES).lost


def test_a_graph_is_kept_up_until_it_has_ended(world):
    assert not world.store.outlook(TYPES).graphs
    graphs.submit(world, ["a"], [])
    host = world.host()
    assert world.store.outlook(TYPES, daemon=host.uuid).graphs
    [case] = host.claim()
    now = world.store.now()
    host.move(case, Event.FINISH, started=now, time=now)
    assert world.store.outlook(TYPES).graphs
    world.store.graphs.end()
    assert not world.store.outlook(TYPES).graphs
