"""Fixtures of the store contract: every store runs through every test here."""

import pytest

from atp.conf import settings
from atp.store import get_store
from atp.store.orm import ORMStore

from .world import World

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
