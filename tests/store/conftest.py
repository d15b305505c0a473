"""Fixtures of the store contract: the store of each database runs through every test here."""

import pytest

from atp.conf import settings
from atp.states import State
from atp.store import get_store

from .internals import enqueueing
from .world import ONE, TWO, World, registration


@pytest.fixture
def store():
    """The store that is chosen for this database, with nothing in its memory."""
    return type(get_store())(settings.DATABASE)


@pytest.fixture
def world(db, store, tmp_path):
    """A queue; whatever the test did, its promises hold in the end."""
    with World(store, tmp_path) as world:
        yield world


@pytest.fixture
def handing_world(transactional_db, tmp_path, monkeypatch):
    """A queue of the store that is chosen, which hands over however much comes in a row."""
    monkeypatch.setattr(enqueueing, "APART", 0.0)
    with World(type(get_store())(settings.DATABASE), tmp_path) as world:
        world.store.types.register([registration(ONE), registration(TWO)])
        yield world


@pytest.fixture
def host(world):
    """A daemon that serves all Types of these tests."""
    return world.host()


@pytest.fixture
def case(world, host):
    """An attempt that runs on that daemon."""
    return world.bring_to(State.RUNNING, host)
