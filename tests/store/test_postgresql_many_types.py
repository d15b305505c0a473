"""The store for PostgreSQL: where many Types wait, a claim looks at a part of them (G9)."""

from collections import Counter

import pytest
from django.db import connection

from atp.conf import settings
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql.shortcuts import PART, Part

from .world import World

pytestmark = pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL")
EACH = 12
TYPES = [f"tests.many.{number}" for number in range(2 * PART + 3)]


@pytest.fixture
def world(db, tmp_path, monkeypatch):
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        # However slow this machine is.
        monkeypatch.setattr("atp.store.postgresql.shortcuts.ALL_AGAIN", 3600.0)
        yield world


@pytest.fixture
def host(world):
    """One that has looked at all Types, of which more waits than it took."""
    for type in TYPES:
        world.enqueue(EACH, type=type)
    host = world.host(*TYPES, "tests.rare")
    assert len(host.claim(len(TYPES))) == len(TYPES)
    assert len(host.memory.shortcut(Part).types) == len(TYPES)
    return host


def counted(claimed):
    return Counter(task.type for task in claimed)


def test_a_part_is_looked_at(host):
    assert len(counted(host.claim(2 * PART))) == PART


def test_each_type_has_its_turn(host):
    taken = Counter(TYPES)
    for _ in range(8):
        taken += counted(host.claim(2 * PART))
        # What one claim takes of one is what another has not had yet.
        assert max(taken.values()) - min(taken.values()) <= 2


def test_nothing_is_left_out(host):
    left = len(TYPES) * (EACH - 1)
    while left > 0:
        assert len(host.claim(100)) == min(left, 100)
        left -= 100
    assert host.claim(100) == []


def test_what_comes_meanwhile_waits_for_a_look_at_all(world, host):
    [rare] = world.enqueue(type="tests.rare")
    assert "tests.rare" not in counted(host.claim(2 * PART))
    host.memory.shortcut(Part).until = 0.0
    assert rare in [task.instance for task in host.claim(2 * PART)]


def test_what_has_run_out_is_made_up_for(world, host):
    """A claim that finds too little in its part looks at all."""
    [rare] = world.enqueue(type="tests.rare")
    claimed = host.claim(len(TYPES) * EACH)
    assert len(claimed) == len(TYPES) * (EACH - 1) + 1
    assert rare in [task.instance for task in claimed]
    assert not host.memory.shortcut(Part).types
