"""The store: the only code that writes to the queue."""

from functools import lru_cache

from django.utils.module_loading import import_string

from ..conf import settings
from .orm import ORMStore


def get_store():
    """Return the store of the queue's database."""
    return _store(settings.DATABASE, settings.STORE)


@lru_cache
def _store(alias, path):
    return (import_string(path) if path else ORMStore)(alias)
