"""Making a session of PostgreSQL as good as new: see :mod:`..renewal`."""

import contextlib
import os
import select
import socket
from functools import cache
from operator import attrgetter

from .literals import literal
from .sessions import session_of

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


def traits(driver):
    return _TRAITS[_name(driver)](driver)


def has_transaction(driver):
    return driver.info.transaction_status not in (_IDLE, _UNKNOWN)


def renew(connection, traits_of_new):
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
        connection._configure_role(driver)
    return True


def _renew(connection, session, cursor):
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
def _renewing(zone, rest):
    return _RENEW % (zone, rest)


def _execute(cursor, sql):
    if _name(cursor) == "psycopg":
        cursor.execute(sql, prepare=False)  # several at once cannot be
    else:
        cursor.execute(sql)


def is_alive(driver, seconds):
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
def bound(driver):
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


def _name(thing):
    """Return the name of the driver of a connection or cursor, even of a subclass."""
    return _named(type(thing))


@cache
def _named(kind):
    modules = (each.__module__.partition(".")[0] for each in kind.__mro__)
    return next(name for name in modules if name in _TRAITS or name == "psycopg2")
