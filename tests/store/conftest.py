"""Fixtures of the store contract: every store runs through every test here."""

import pytest
from django.db import connections

from atp.conf import settings
from atp.store.orm import ORMStore
from atp.store.postgresql import PostgreSQLStore

from .world import World

STORES = [ORMStore]
if connections[settings.DATABASE].vendor == "postgresql":
    STORES.append(PostgreSQLStore)


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def store(request):
    return request.param(settings.DATABASE)


@pytest.fixture
def world(db, store, tmp_path):
    """A queue; whatever the test did, its promises hold in the end."""
    with World(store, tmp_path) as world:
        yield world
