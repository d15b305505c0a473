"""Cursors of this store."""

import re
from functools import cache

from django.db.backends.sqlite3.base import DatabaseWrapper

from ...cursors import Bare as AnyBare
from ...cursors import is_watched

_NAMED = re.compile(r"%\((\w+)\)s")


def cursor_of(connection):
    """Return a cursor for statements of this store, as a context."""
    return connection.cursor() if is_watched(connection, DatabaseWrapper) else Bare(connection)


class Bare(AnyBare):
    """The driver's cursor, which takes statements and parameters in Django's style."""

    __slots__ = ()

    def execute(self, sql, parameters=()):
        self._cursor.execute(_drivers(sql), parameters)

    def executemany(self, sql, rows):
        self._cursor.executemany(_drivers(sql), rows)


@cache
def _drivers(sql):
    """Return the statement in the driver's style: ``:name`` for ``%(name)s``, ``?`` for ``%s``."""
    return _NAMED.sub(r":\1", sql).replace("%s", "?")
