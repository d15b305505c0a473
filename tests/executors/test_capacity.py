"""What a dispatcher claims by the report of a follower, without an engine."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from atp.daemon.dispatcher.capacity import EngineCapacity
from atp.daemon.dispatcher.pool import Room
from atp.daemon.protocol import EngineState
from atp.store.common.turns import ClaimMemory
from tests.app import tasks_executors as types

NOTE, GPU = types.note.identifier, types.needs_gpu.identifier
STATE = EngineState("", "address", hosts=2, places=8, room=8, resources={"GPU": 2.0})


class Pool(list):
    """The attempts that the daemon holds at its places."""

    links = range(8)
    concurrency: ClassVar = {}

    def attempts(self):
        return iter(self)


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def capacity(pool):
    return EngineCapacity({GPU: {"GPU": 1}}, pool)


def attempts(count, type=NOTE):
    return [SimpleNamespace(type=type, single=False) for _ in range(count)]


def claimed(capacity, *wanted):
    """Return the Types and the limit of each claim, if each finds all that it may take."""
    calls = []

    def claim(types, limit, free, memory):
        calls.append((tuple(types), limit))
        return attempts(limit, types[0])

    capacity.claims(wanted, Room(8, 8), Room(0, 0), ClaimMemory(), claim)()
    return dict(calls)


def test_nothing_finds_room_before_the_first_report_and_while_the_engine_is_away(capacity):
    assert not capacity.has_room
    capacity.learn(STATE)
    assert capacity.bounded(20) == 20
    capacity.learn(EngineState("it does not answer"))
    assert (capacity.has_room, capacity.error) == (False, "it does not answer")
    assert capacity.admit(attempts(1))[0] == []


def test_places_of_others_are_not_claimed_for(capacity, pool):
    capacity.learn(STATE._replace(room=3))
    pool.extend(attempts(2))
    assert capacity.bounded(20) == 1
    admitted, surplus = capacity.admit(attempts(3))
    assert (len(admitted), len(surplus)) == (1, 2)


def test_resources_of_the_cluster_are_counted(capacity, pool):
    capacity.learn(STATE)
    assert claimed(capacity, GPU) == {(GPU,): 2}
    pool.extend(attempts(2, GPU))
    assert capacity.claimable((NOTE, GPU)) == (NOTE,)


def test_type_that_the_cluster_lacks_something_for_is_not_claimed(capacity):
    capacity.learn(STATE._replace(lacks={GPU: "GPU=1."}))
    assert capacity.claimable((NOTE, GPU)) == (NOTE,)
    assert claimed(capacity, NOTE, GPU) == {(NOTE,): 8}
    assert capacity.admit(attempts(1, GPU))[0] == []


def test_engine_that_does_not_count_a_resource_has_no_limit_for_it(capacity):
    capacity.learn(STATE._replace(resources={}))
    assert claimed(capacity, GPU) == {(GPU,): 8}
