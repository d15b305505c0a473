"""The store for PostgreSQL: claims that begin where the last one ended."""

import time
from datetime import timedelta

import pytest
from django.db import connection

from atp.conf import settings
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql.shortcuts import Ends

from .world import ONE, SECOND, TWO, World

pytestmark = pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL")


@pytest.fixture
def world(db, tmp_path):
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        yield world


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


def test_what_lies_before_is_found_when_there_is_room(world, slow):
    """G2: nothing is left behind."""
    host = world.host()
    later = world.enqueue(4)
    assert keys(host.claim(1)) == later[:1]
    [earlier] = world.enqueue(due=world.store.now() - timedelta(hours=1))
    slow()
    assert keys(host.claim(2)) == later[1:3]
    slow()
    assert sorted(keys(host.claim(5))) == sorted([later[3], earlier])
    slow()
    assert host.claim(5) == []


def test_what_lies_before_is_found_soon_in_any_case(world, slow):
    """G8: the order is broken for a moment, and only while each look is slow."""
    host = world.host()
    world.enqueue(20)
    host.claim(1)
    [earlier] = world.enqueue(due=world.store.now() - timedelta(hours=1))
    slow()
    assert earlier not in keys(host.claim(2))
    host.memory.shortcut(Ends).until = time.monotonic() - 1
    assert keys(host.claim(1)) == [earlier]


@pytest.mark.parametrize("priority", [-5, 3, 5, 7, 99])
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


def test_types_that_had_nothing_begin_at_their_beginning(world, slow):
    host = world.host()
    world.enqueue(10)
    host.claim(1)
    others = world.enqueue(3, type=TWO, due=world.store.now() - SECOND)
    slow()
    claimed = host.claim(6)
    assert sorted(each.instance for each in claimed if each.type == TWO) == others
    assert len([each for each in claimed if each.type == ONE]) == 3


def test_a_look_that_was_slow_has_the_next_begin_where_it_ended(world, monkeypatch):
    monkeypatch.setattr("atp.store.postgresql.shortcuts.SLOW", 0.0)
    monkeypatch.setattr("atp.store.postgresql.shortcuts.EACH", 0.0)
    host = world.host()
    world.enqueue(60)
    host.claim(5)
    assert host.memory.shortcut(Ends).until <= time.monotonic()  # few are never slow
    host.claim(30)
    assert host.memory.shortcut(Ends).until > time.monotonic()


def test_a_look_at_many_lanes_is_not_slow_for_that(world, monkeypatch):
    """To begin in each of them where it ended would cost as much as to look for them."""
    monkeypatch.setattr("atp.store.postgresql.shortcuts.SLOW", 0.0)
    monkeypatch.setattr("atp.store.postgresql.shortcuts.EACH", 1.0)
    host = world.host()
    for number in range(30):
        world.enqueue(2, collection=f"lane {number}")
    host.claim(30)
    assert host.memory.shortcut(Ends).until <= time.monotonic()
