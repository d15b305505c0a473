"""The base of all parts of this store: one writer at a time, and values as Django writes them.

A statement here takes all its rows in one parameter of JSON. Python's driver
lets go of the interpreter at every step, so that a statement for each row
would be slowed down by whatever the other threads of the process do.
"""

from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from json import JSONEncoder

from django.db import transaction

from ..common.base import ORMBase
from .driver.cursors import cursor_of
from .driver.turns import turn

# What is no text in UTF-8 is refused by the driver, as it would be as a parameter of its own.
as_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# In these modes of Django's connections a transaction that has begun may write.
_WRITING = ("IMMEDIATE", "EXCLUSIVE")
_NOTHING = "UPDATE atp_daemon SET pid = pid WHERE false"


class SQLiteBase(ORMBase):
    @contextmanager
    def atomic(self):
        """A transaction that may write from its beginning, whatever mode the project has set.

        One that has read first fails at once if another has written since: no
        time-out helps it.
        """
        # Inside a caller's transaction the turn at writing has come already.
        outermost = not self.connection.in_atomic_block
        with turn(self.alias) if outermost else nullcontext(), transaction.atomic(self.alias):
            if self.connection.transaction_mode not in _WRITING:
                self.run(_NOTHING)
            yield

    def select(self, statement, **parameters):
        """Execute one statement and return its rows."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    def run(self, statement, **parameters):
        """Execute one statement and return how many rows it has written."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(statement, parameters)
            return cursor.rowcount

    def run_many(self, statement, rows):
        """Execute one statement for each of the rows, which are sequences."""
        with cursor_of(self.connection) as cursor:
            cursor.executemany(statement, rows)


def as_text(time):
    """Return a point in time as InstantField writes it."""
    if time is None:
        return None
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat(" ")[:-6]


def as_instant(text):
    """Return what InstantField has written as a point in time."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
