"""The base of all parts of this store: one writer at a time, and values in Django's formats.

Each statement takes all its rows in one JSON parameter. Python's driver releases the
interpreter lock at every step, so a statement for each row would be slowed down by the other
threads of the process.
"""

from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from json import JSONEncoder

from django.db import transaction

from ..common.base import ORMBase
from .driver.cursors import cursor_of
from .driver.turns import turn

# The driver refuses text that is not valid UTF-8, as it would in a parameter of its own.
as_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# The modes of Django's connections in which a transaction may write as soon as it has begun.
_WRITING = ("IMMEDIATE", "EXCLUSIVE")
_NOTHING = "UPDATE atp_daemon SET pid = pid WHERE false"


class SQLiteBase(ORMBase):
    @contextmanager
    def atomic(self):
        """Return a transaction that may write from its beginning, in any mode of the project.

        A transaction that has only read fails at once when it writes, if another has written since:
        no time-out helps.
        """
        # Inside a caller's transaction, the turn has been taken already.
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
        """Execute one statement and return the number of rows written."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(statement, parameters)
            return cursor.rowcount

    def run_many(self, statement, rows):
        """Execute one statement for each of the rows; a row is a sequence of values."""
        with cursor_of(self.connection) as cursor:
            cursor.executemany(statement, rows)


def as_text(time):
    """Return a time in the text format of InstantField; None stays None."""
    if time is None:
        return None
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat(" ")[:-6]


def as_instant(text):
    """Return the time that InstantField has written as this text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
