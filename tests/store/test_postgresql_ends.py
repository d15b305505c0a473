"""The store for PostgreSQL: claims that begin where the last one ended, or look at a part."""

import time
from collections import Counter

import pytest

from .internals import PART, Ends, KnownTypes
from .world import HOUR, only_postgresql

pytestmark = only_postgresql


@pytest.fixture
def slow(world):
    """As if a look from the beginning had just taken very long."""

    def slow():
        for host in world.hosts:
            host.memory.shortcut(Ends).until = time.monotonic() + 60

    return slow


def keys(claimed):
    return [each.instance for each in claimed]


def test_it_goes_on_in_order(world, slow):
    """G8, as long as nothing comes in between."""
    expected = world.enqueue(40)
    host = world.host()
    taken = keys(host.claim(10))
    for _ in range(3):
        slow()
        taken += keys(host.claim(10))
    assert taken == expected


def test_what_lies_before_is_found_when_there_is_room_and_soon_in_any_case(world, slow):
    """G2, G8: the order is broken for a moment, and only while each look is slow."""
    host = world.host()
    later = world.enqueue(4)
    assert keys(host.claim(1)) == later[:1]
    [earlier] = world.enqueue(due=world.store.now() - HOUR)
    slow()
    assert keys(host.claim(2)) == later[1:3]
    slow()
    assert sorted(keys(host.claim(5))) == sorted([later[3], earlier])
    slow()
    assert host.claim(5) == []
    later = world.enqueue(4)
    assert keys(host.claim(1)) == later[:1]
    [earlier] = world.enqueue(due=world.store.now() - HOUR)
    slow()
    assert keys(host.claim(2)) == later[1:3]
    host.memory.shortcut(Ends).until = time.monotonic() - 1
    assert keys(host.claim(1)) == [earlier]


@pytest.mark.parametrize("priority", [3, 7])
def test_priorities_are_what_they_are(world, slow, priority):
    """G8: what has a higher priority comes first, what has a lower one is not left behind."""
    host = world.host()
    first = world.enqueue(3, priority=5)
    host.claim(1)
    other = world.enqueue(3, priority=priority)
    expected = sorted(
        [*((5, key) for key in first[1:]), *((priority, key) for key in other)],
        key=lambda each: (-each[0], each[1]),
    )
    slow()
    assert keys(host.claim(4)) == [key for _, key in expected[:4]]
    slow()
    assert keys(host.claim(4)) == [key for _, key in expected[4:]]


# Where many Types wait, a claim looks at a part of them (G9)


EACH = 12
TYPES = [f"tests.many.{number}" for number in range(2 * PART + 3)]


@pytest.fixture
def host(world, monkeypatch):
    """One that has looked at all Types, of which more waits than it took."""
    # However slow this machine is.
    monkeypatch.setattr("atp.store.postgresql.claims.ALL_AGAIN", 3600.0)
    for type in TYPES:
        world.enqueue(EACH, type=type)
    host = world.host(*TYPES, "tests.rare")
    assert len(host.claim(len(TYPES))) == len(TYPES)
    assert len(host.memory.shortcut(KnownTypes).types) == len(TYPES)
    return host


def counted(claimed):
    return Counter(task.type for task in claimed)


def test_each_type_has_its_turn(host):
    taken = Counter(TYPES)
    for _ in range(8):
        taken += counted(host.claim(2 * PART))
        # What one claim takes of one is what another has not had yet.
        assert max(taken.values()) - min(taken.values()) <= 2


@pytest.mark.parametrize("is_over", [True, False])
def test_what_comes_meanwhile_waits_for_a_look_at_all(world, host, is_over):
    """Its time comes, or a claim finds too little in its part."""
    [rare] = world.enqueue(type="tests.rare")
    assert "tests.rare" not in counted(host.claim(PART))
    if is_over:
        host.memory.shortcut(KnownTypes).until = 0.0
        assert rare in keys(host.claim(2 * PART))
    else:
        claimed = host.claim(len(TYPES) * EACH)
        assert len(claimed) == len(TYPES) * (EACH - 1) + 1 - PART
        assert rare in keys(claimed)
        assert not host.memory.shortcut(KnownTypes).types
