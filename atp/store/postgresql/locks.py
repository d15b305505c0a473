"""A daemon's statements on the connection of an application: they leave no trace there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db.backends.postgresql.base import DatabaseWrapper

from .sessions import session_of
from .statements import PLANNING, cursor_of

# Tests are such an application: the transaction of a test goes on after a daemon's work in it,
# and its connection after the test.


@contextmanager
def as_guest(connection: DatabaseWrapper) -> Iterator[None]:
    """Return a context in which a daemon's statements change no setting of the session.

    Each statement sets its own planning. After the block, the session and its open transaction
    plan as before.
    """
    connection.ensure_connection()
    session = session_of(connection)
    own, session.plans_own_way = session.plans_own_way, False
    before = _planning(connection) if connection.in_atomic_block else None
    try:
        yield
        if before and connection.in_atomic_block:
            _plan(connection, before)
    finally:
        session.plans_own_way = own


def _planning(connection: DatabaseWrapper) -> tuple[Any, ...]:
    said = ", ".join(f"current_setting('{name}')" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {said}")
        return cursor.fetchone()


def _plan(connection: DatabaseWrapper, values: Sequence[Any]) -> None:
    """Set these planning values again for the rest of the transaction."""
    given = ", ".join(f"set_config('{name}', %s, true)" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {given}", values)
