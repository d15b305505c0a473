"""The store: the only code that writes to the queue."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from django.db import connections
from django.utils.module_loading import import_string

from ..conf import settings

if TYPE_CHECKING:
    from .protocol import Store

# The path of the store class, by the database's vendor. A path is imported only when it is
# needed, so that a project needs the driver of its own database alone.
_STORES = {
    "postgresql": "atp.store.postgresql.PostgreSQLStore",
    "sqlite": "atp.store.sqlite.SQLiteStore",
}
_PORTABLE = "atp.store.common.store.ORMStore"


def get_store() -> Store:
    """Return the store that ``ATP["STORE"]`` names; by default that of the queue's database."""
    return _store(settings.DATABASE, settings.STORE)


@lru_cache
def _store(alias: str, path: str) -> Store:
    chosen = path or _STORES.get(connections[alias].vendor, _PORTABLE)
    return import_string(chosen)(alias)
