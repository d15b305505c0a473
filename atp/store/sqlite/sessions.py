"""One writer at a time; cursors; making a connection as good as new."""

import contextlib
import os
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from itertools import count
from json import JSONEncoder
from operator import attrgetter
from typing import Any, overload

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ..common.cursors import Bare as AnyBare
from ..common.cursors import is_watched

# Values in Django's formats.
#
# Each statement takes all its rows in one JSON parameter. Python's driver releases the
# interpreter lock at every step, so a statement for each row would be slowed down by the other
# threads of the process.

# The driver refuses text that is not valid UTF-8, as it would in a parameter of its own.
as_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@overload
def as_text(time: datetime) -> str: ...
@overload
def as_text(time: None) -> None: ...
def as_text(time: datetime | None) -> str | None:
    """Return a time in the text format of InstantField; None stays None."""
    if time is None:
        return None
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat(" ")[:-6]


def as_instant(text: str) -> datetime:
    """Return the time that InstantField has written as this text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Cursors of this store.

_NAMED = re.compile(r"%\((\w+)\)s")


def cursor_of(connection: BaseDatabaseWrapper) -> "CursorWrapper | Bare":
    """Return a cursor for statements of this store, as a context."""
    return connection.cursor() if is_watched(connection, DatabaseWrapper) else Bare(connection)


class Bare(AnyBare):
    """The driver's cursor, which takes statements and parameters in Django's style."""

    __slots__ = ()

    def execute(self, sql: str, parameters: Any = ()) -> None:
        self._cursor.execute(_drivers(sql), parameters)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(_drivers(sql), rows)


@cache
def _drivers(sql: str) -> str:
    """Return the statement in the driver's style: ``:name`` for ``%(name)s``, ``?`` for ``%s``."""
    return _NAMED.sub(r":\1", sql).replace("%s", "?")


# Making a connection to SQLite as good as new (`base.py` names the functions).
#
# SQLite cannot reset a connection. So one statement looks at it: a connection that a handler has
# changed is not as good as new, and must be closed.
#
# That statement takes longer than many a handler. But SQLite calls an authorizer for everything
# that a statement will do, when it prepares it. If a connection has only prepared statements that
# read and write rows, the look is not needed.

# The pragmas that belong to the connection, not to the file.
_PRAGMAS = (
    *("automatic_index", "busy_timeout", "cache_size", "cache_spill", "cell_size_check"),
    *("defer_foreign_keys", "foreign_keys", "fullfsync", "ignore_check_constraints"),
    *("legacy_alter_table", "locking_mode", "query_only", "read_uncommitted"),
    *("recursive_triggers", "reverse_unordered_selects", "secure_delete", "synchronous"),
    *("temp_store", "trusted_schema", "writable_schema"),
)
_LOOKS = (
    "(SELECT count(*) FROM temp.sqlite_master)",
    "(SELECT group_concat(name) FROM pragma_database_list WHERE name <> 'temp')",
    "'a' LIKE 'A'",
    *(f"(SELECT * FROM pragma_{name})" for name in _PRAGMAS),  # noqa: S608 (those above)
)
_LOOK = f"SELECT {', '.join(_LOOKS)}"

# Actions that change no connection, except for calls of the functions below.
_HARMLESS = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in (
        *("SELECT", "READ", "INSERT", "UPDATE", "DELETE", "FUNCTION", "RECURSIVE"),
        *("TRANSACTION", "SAVEPOINT"),
    )
)
_HARMFUL = frozenset({"load_extension", "fts3_tokenizer"})

_of_driver = attrgetter("row_factory", "text_factory", "isolation_level")


class _Watch:
    """The authorizer of one connection, which allows everything and notes what changes it.

    A prepared statement may be executed again without a call of the authorizer. So a connection
    that was changed once is looked at each time.
    """

    def __init__(self) -> None:
        self.prepared = 0
        self.is_touched = False

    def __call__(
        self, action: int, first: str | None, second: str | None, *where: str | None
    ) -> int:
        self.prepared += 1
        if action not in _HARMLESS or (action == sqlite3.SQLITE_FUNCTION and second in _HARMFUL):
            self.is_touched = True
        return sqlite3.SQLITE_OK

    def is_asked(self, driver: sqlite3.Connection) -> bool:
        """Return whether this is still the authorizer: a new statement must call it."""
        before = self.prepared
        driver.execute(f"SELECT {next(_NEW)}")
        return self.prepared > before


# Numbers that make each statement new.
_NEW = count()


def traits(driver: sqlite3.Connection) -> tuple[Any, tuple[Any, ...], _Watch]:
    own, looked, watch = _of_driver(driver), _look(driver), _Watch()
    driver.set_authorizer(watch)
    return own, looked, watch


def has_transaction(driver: sqlite3.Connection) -> bool:
    return driver.in_transaction


def renew(
    connection: BaseDatabaseWrapper, traits_of_new: tuple[Any, tuple[Any, ...], _Watch]
) -> bool:
    driver = connection.connection
    if driver.in_transaction:
        return False
    driver.set_progress_handler(None, 0)
    driver.set_trace_callback(None)
    own, looked, watch = traits_of_new
    if _of_driver(driver) != own or not watch.is_asked(driver):
        return False
    return not watch.is_touched or _look(driver) == looked


def _look(driver: sqlite3.Connection) -> tuple[Any, ...]:
    return tuple(driver.execute(_LOOK).fetchone())


def is_alive(driver: sqlite3.Connection, seconds: float) -> bool:
    return True


@contextlib.contextmanager
def bound(driver: sqlite3.Connection) -> Iterator[None]:
    yield


# The threads of a process take turns at writing.
#
# A thread that waits for SQLite's own lock sleeps, longer each time, and then finds that another
# has come first. Where claims and records overlapped, that cost a quarter of their rate; of eight
# threads that enqueued, one waited 0.6 s instead of 0.05 s. Waiting here saves that. It promises
# nothing: after PATIENCE the thread goes on without its turn.

# In seconds.
PATIENCE = 1.0

# By process, since a fork may copy a held lock, and by alias. The locks are reentrant: code at
# the end of a transaction may begin another.
_turns: defaultdict[tuple[int, str], threading.RLock] = defaultdict(threading.RLock)


@contextmanager
def turn(alias: str) -> Iterator[None]:
    """Return a context that has the turn at this database, if it can be had in time."""
    lock = _turns[os.getpid(), alias]
    taken = lock.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        if taken:
            lock.release()
