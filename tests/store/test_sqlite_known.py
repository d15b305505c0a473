"""The store for SQLite: claims from the lanes that are known, while a look at all takes long."""

import pytest
from django.db import connection

from atp.conf import settings
from atp.store.sqlite import SQLiteStore
from atp.store.sqlite.look import known
from atp.store.sqlite.look.known import Known

from .world import ONE, TWO, World, scope

pytestmark = pytest.mark.skipif(connection.vendor != "sqlite", reason="that of SQLite")


@pytest.fixture
def world(db, tmp_path, monkeypatch):
    monkeypatch.setattr(known, "SLOW", 0.0)
    # For the whole test, however quick the look was.
    monkeypatch.setattr(known, "TIMES", 1e9)
    monkeypatch.setattr(known, "AGAIN", 1e9)
    with World(SQLiteStore(settings.DATABASE), tmp_path) as world:
        yield world


def keys(claimed):
    return [each.instance for each in claimed]


def test_they_go_on_in_order(world):
    """G8: by priority, although nobody has looked which there are."""
    last, first = world.enqueue(6), world.enqueue(6, priority=5)
    host = world.host()
    taken = keys(host.claim(3))
    assert host.memory.shortcut(Known).lanes(3)
    now = world.enqueue(priority=9)
    while claimed := host.claim(3):
        taken += keys(claimed)
    assert taken == first[:3] + now + first[3:] + last


def test_other_lanes_are_found_where_those_do_not_suffice(world):
    world.enqueue(6)
    host = world.host()
    host.claim(3)
    [other] = world.enqueue(type=TWO)
    assert other not in keys(host.claim(2))
    assert other in keys(host.claim(3))


def test_other_lanes_are_found_in_any_case_soon(world):
    """G9."""
    world.enqueue(20)
    host = world.host()
    host.claim(3)
    [other] = world.enqueue(type=TWO)
    host.memory.shortcut(Known).forget()
    assert other in keys(host.claim(3))


def test_a_claim_during_which_the_shortcut_ends_finds_what_is_due(world, monkeypatch):
    """G9: it may end between the look before the transaction and the claim within it."""
    world.enqueue(6)
    host = world.host()
    host.claim(2)
    asked, lanes = [], Known.lanes

    def only_once(self, limit):
        asked.append(limit)
        return lanes(self, limit) if len(asked) == 1 else []

    monkeypatch.setattr(Known, "lanes", only_once)
    assert len(host.claim(2)) == 2


def test_what_is_held_meanwhile_is_held(world):
    world.enqueue(6)
    host = world.host()
    host.claim(2)
    world.store.shut(scope(ONE), "hold")
    assert host.claim(2) == []


def test_many_lanes_are_looked_for_each_time(world):
    for number in range(known.MANY + 1):
        world.enqueue(2, collection=f"lane {number}")
    host = world.host()
    host.claim(known.MANY + 2)
    assert not host.memory.shortcut(Known).lanes(known.MANY + 2)
