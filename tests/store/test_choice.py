"""Which store a project gets."""

import pytest
from django.db import connection
from django.test.utils import override_settings

from atp import store
from atp.store import get_store

from ..helpers import run_python
from .internals import ORMStore
from .world import only_sqlite

VENDORS = {"sqlite": "SQLiteStore", "postgresql": "PostgreSQLStore", "another": "ORMStore"}


@pytest.fixture(autouse=True)
def no_memory():
    store._store.cache_clear()
    yield
    store._store.cache_clear()


def test_it_is_that_of_the_databases_vendor_or_of_the_setting(monkeypatch):
    for vendor, name in VENDORS.items():
        store._store.cache_clear()
        monkeypatch.setattr(type(connection._connections["default"]), "vendor", vendor)
        assert type(get_store()).__name__ == name
    monkeypatch.undo()
    with override_settings(ATP={"STORE": "atp.store.common.store.ORMStore"}):
        assert type(get_store()) is ORMStore


@only_sqlite
def test_the_stores_of_other_databases_are_not_imported():
    """They may need a driver that the project does not have."""
    code = (
        "import sys, django; django.setup(); from atp.store import get_store; print(get_store());"
        "print([name for name in sys.modules if 'psycopg' in name or 'postgresql' in name])"
    )
    found, others = run_python(code).splitlines()
    assert ("SQLiteStore" in found, others) == (True, "[]")
