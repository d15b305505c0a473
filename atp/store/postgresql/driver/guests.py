"""A daemon's statements on a connection of an application: they leave no trace there.

A test is such an application: its transaction goes on after what a daemon does in it, and its
connection after the test.
"""

from contextlib import contextmanager

from .cursors import cursor_of
from .sessions import session_of
from .statements import PLANNING


@contextmanager
def as_guest(connection):
    """Let a session, and a transaction that is open, plan as before when the block has ended.

    Within it each statement of a daemon says by itself how it is planned.
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


def _planning(connection):
    said = ", ".join(f"current_setting('{name}')" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {said}")
        return cursor.fetchone()


def _plan(connection, values):
    """Say so for the rest of the transaction, as the daemon's statements have."""
    given = ", ".join(f"set_config('{name}', %s, true)" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {given}", values)
