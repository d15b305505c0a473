"""A session: its settings, what is known of it, making it as good as new."""

import contextlib
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from django.db.backends.postgresql.base import DatabaseWrapper

from ...conf import settings

# Values written out as literals of SQL.
#
# A driver takes three times as long to adapt a value as it takes to write it down here.


def literal(value: Any) -> str | None:
    """Return a value as a literal of SQL; None if the driver has to adapt it.

    Dollar quotes keep their content as it is, however the session reads backslashes.
    """
    kind = type(value)
    if kind is str:
        if value.isalnum():
            return f"'{value}'"
        # The driver refuses NUL, which no text in the database has.
        return None if "$" in value or "\0" in value else f"$atp${value}$atp$"
    if value is None:
        return "NULL"
    return repr(value).lower() if kind is int or kind is bool else None


# The settings of a daemon's sessions, whatever a role, a database or the server sets.
#
# A daemon's statements rely on these settings: how arrays are read and times are written, which
# version of a row they see, and that only the daemon itself cuts them short. The sessions of an
# application keep their settings. The statements there rely only on ``array_nulls``, for which
# there is a system check.

# The reading of backslashes is missing here: a driver asks for it when it connects, and
# writes texts accordingly.
_READING = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    # All digits of a number: a claim goes on from the due time where another ended.
    "extra_float_digits": "1",
}
_TRANSACTIONS = {
    # After waiting for a row, a statement must look at it again. A serialization failure
    # would cost the daemon its identity.
    "default_transaction_isolation": "'read committed'",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
_PATIENCE = {
    # The dispatcher limits the time of each call itself, and so knows what it has cut short.
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}
# The first server version with transaction_timeout.
_TRANSACTION_TIMEOUT = 170000
# The statements are made to walk along indexes and to look up row by row.
_PLANNING = {"enable_indexscan": "on", "enable_indexonlyscan": "on", "enable_nestloop": "on"}
# Sent first, since the transaction has begun with the settings of the role.
_THIS_TRANSACTION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"


def of_session(version: int) -> str:
    """Return the statements that set up a session of a daemon, for this server version."""
    return "; ".join(_lines("SET", version, settings.LEASE))


def of_transaction(version: int, *, is_outermost: bool) -> str:
    """Return the statements that set up a transaction in a session that a pooler shares."""
    lines = _lines("SET LOCAL", version, settings.LEASE)
    return "; ".join([_THIS_TRANSACTION, *lines] if is_outermost else lines)


@cache
def _lines(verb: str, version: int, lease: float) -> list[str]:
    values = _READING | _TRANSACTIONS | _PATIENCE | _PLANNING
    # A daemon that is stopped within a transaction blocks others no longer than its lease.
    values["idle_in_transaction_session_timeout"] = str(round(1000 * lease))
    if version >= _TRANSACTION_TIMEOUT:
        values["transaction_timeout"] = "0"
    return [f"{verb} {name} = {value}" for name, value in values.items()]


# Making a session of PostgreSQL as good as new (`base.py` names the functions).

_IDLE, _UNKNOWN = 0, 4
# In seconds: a connection that has rested for longer is asked whether it is alive.
_ASK_AFTER = 5.0
# In milliseconds: a link is given up if what was sent is not confirmed for so long.
_GIVE_UP_AFTER = 5000

# The same as DISCARD ALL, in one message, except for prepared statements: those of ATP stay, since
# planning them takes longer than executing them. The time zone follows, which Django expects.
_RENEW = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *;
SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; SET TIME ZONE %s; %s
"""
# Shows whether others have prepared statements. Those of the driver do not count.
_LOOK = """
SELECT FROM pg_prepared_statements
WHERE NOT starts_with(name, 'atp_') AND NOT starts_with(name, '_pg3_') LIMIT 1
"""
# The name of the prepared look: to plan it takes as long as the rest of a renewal.
_PREPARED_LOOK = "atp_look"

# By the driver's name, since only one of the two may be installed.
_TRAITS = {
    "psycopg2": attrgetter(
        "isolation_level", "readonly", "deferrable", "cursor_factory", "encoding"
    ),
    "psycopg": attrgetter(
        *("isolation_level", "read_only", "deferrable"),
        *("cursor_factory", "row_factory", "prepare_threshold"),
    ),
}


def traits(driver: Any) -> tuple[Any, ...]:
    return _TRAITS[_name(driver)](driver)


def has_transaction(driver: Any) -> bool:
    return driver.info.transaction_status not in (_IDLE, _UNKNOWN)


def renew(connection: DatabaseWrapper, traits_of_new: tuple[Any, ...]) -> bool:
    driver = connection.connection
    if driver.closed or driver.info.transaction_status != _IDLE:
        return False
    if traits(driver) != traits_of_new:
        return False
    if not driver.autocommit:
        driver.autocommit = True
    session = session_of(connection)
    cursor = driver.cursor()
    try:
        if not _renew(connection, session, cursor):
            return False
    finally:
        cursor.close()
    session.plans_own_way = None
    if _name(driver) == "psycopg2" and driver.notifies:
        driver.notifies.clear()
    if connection.pool:
        # Django sets the role once, when the pool opens a connection.
        connection._configure_role(driver)  # type: ignore[attr-defined]
    return True


def _renew(connection: DatabaseWrapper, session: "Session", cursor: Any) -> bool:
    """Reset what the server can reset; returns whether no foreign prepared statement is left."""
    name = connection.timezone_name
    zone = literal(name) if name else "DEFAULT"
    # Whether the driver itself prepares statements, and remembers which.
    prepares = getattr(connection.connection, "prepare_threshold", None) is not None
    if not session.prepared and not prepares:
        _execute(cursor, _renewing(zone, "DEALLOCATE ALL"))
        return True
    if session.prepared and _PREPARED_LOOK not in session.prepared:
        _execute(cursor, f"PREPARE {_PREPARED_LOOK} AS {_LOOK}")
        session.prepared.add(_PREPARED_LOOK)
    look = f"EXECUTE {_PREPARED_LOOK}" if session.prepared else _LOOK
    _execute(cursor, _renewing(zone, look))
    # The last result counts. psycopg2 has no other; psycopg 3 begins with the first.
    while _name(cursor) == "psycopg" and cursor.nextset():
        pass
    if not cursor.rowcount:
        return True
    if prepares:
        return False
    _execute(cursor, "DEALLOCATE ALL")
    session.prepared.clear()
    return True


@cache
def _renewing(zone: str | None, rest: str) -> str:
    return _RENEW % (zone, rest)


def _execute(cursor: Any, sql: str) -> None:
    if _name(cursor) == "psycopg":
        cursor.execute(sql, prepare=False)  # several at once cannot be
    else:
        cursor.execute(sql)


def is_alive(driver: Any, seconds: float) -> bool:
    if driver.closed:
        return False
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    # To an idle session the server sends nothing but the news of its end.
    if seconds < _ASK_AFTER and not poll.poll(0):
        return True
    try:
        with bound(driver):
            driver.cursor().execute("SELECT 1")
    except Exception:
        return False
    return True


@contextlib.contextmanager
def bound(driver: Any) -> Iterator[None]:
    try:
        link = socket.socket(fileno=os.dup(driver.fileno()))
    except Exception:  # it is closed
        yield
        return
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    with link:
        if option is None or link.family == socket.AF_UNIX:
            yield
            return
        before = link.getsockopt(socket.IPPROTO_TCP, option)
        link.setsockopt(socket.IPPROTO_TCP, option, _GIVE_UP_AFTER)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, option, before)


def _name(thing: object) -> str:
    """Return the name of the driver of a connection or cursor, even of a subclass."""
    return _named(type(thing))  # type: ignore[arg-type]


@cache
def _named(kind: type[Any]) -> str:
    modules = (each.__module__.partition(".")[0] for each in kind.__mro__)
    return next(name for name in modules if name in _TRAITS or name == "psycopg2")


# The known facts about a connection's session with the server.

# In seconds: older plans are thrown away, since the tables may have grown.
KEEP = 60.0


class Session:
    """A session; ``driver`` is the driver's connection. A new connection is a new session."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        # The number of executions of each statement, and the names of those prepared.
        self.uses: Counter[str] = Counter()
        self.prepared: set[str] = set()
        # Whether the server keeps prepared statements, whether it plans as for a daemon, and
        # whether there is a pooler; None until it is known.
        self.keeps: bool | None = None
        self.plans_own_way: bool | None = None
        self.is_pooled: bool | None = None
        # In seconds: how long a statement waits for a lock of another session; None is no limit.
        self.lock_timeout: float | None = None
        # Whether this session last recorded graph nodes, or Instances with hooks.
        self.meets_settled = False
        self.planned = time.monotonic()
        self._kept: list[tuple[Any, Any]] = []

    def is_stale(self) -> bool:
        """Return whether the plans must be made anew; from now on they count as new."""
        now = time.monotonic()
        if now - self.planned < KEEP:
            return False
        self.planned = now
        return True

    def take_cursor(self) -> Any:
        """Return the kept cursor of the driver, which is kept no longer; None if there is none."""
        try:
            cursor, factory = self._kept.pop()
        except IndexError:
            return None
        # A tracing tool may have replaced the cursor factory meanwhile.
        return cursor if factory is self.driver.cursor_factory else None

    def keep_cursor(self, cursor: Any) -> None:
        """Keep a cursor for the next statement."""
        self._kept.append((cursor, self.driver.cursor_factory))


# Sessions by Django's connection.
_SESSIONS: WeakKeyDictionary[DatabaseWrapper, Session] = WeakKeyDictionary()


def session_of(connection: DatabaseWrapper) -> Session:
    """Return the current :class:`Session` of one of Django's connections, which must be open."""
    session = _SESSIONS.get(connection)
    if session is None or session.driver is not connection.connection:
        session = _SESSIONS[connection] = Session(connection.connection)
    return session
