"""Fixtures of the store contract: every store runs through every test here."""

import contextlib

import pytest

from atp.conf import settings
from atp.store import get_store, handing
from atp.store.orm import ORMStore

from .handings import say
from .world import ONE, TWO, World, registration

# The portable one, and that which is chosen for this database.
STORES = list(dict.fromkeys([ORMStore, type(get_store())]))


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def store(request):
    return request.param(settings.DATABASE)


@pytest.fixture
def world(db, store, tmp_path):
    """A queue; whatever the test did, its promises hold in the end."""
    with World(store, tmp_path) as world:
        yield world


@pytest.fixture
def handing_world(transactional_db, tmp_path, monkeypatch):
    """A queue of the store that is chosen, which hands over however much comes in a row."""
    monkeypatch.setattr(handing, "APART", 0.0)
    with World(type(get_store())(settings.DATABASE), tmp_path) as world:
        world.store.register([registration(ONE), registration(TWO)])
        yield world


@pytest.fixture
def listening(world):
    """Make a daemon that listens and has said that it is idle, with its listener."""
    with contextlib.ExitStack() as stack:

        def listen(*types, **said):
            host = world.host(*types)
            ear = stack.enter_context(contextlib.closing(world.store.listener()))
            assert ear.wait(0)
            say(world, host, ear, **said)
            return host, ear

        yield listen
