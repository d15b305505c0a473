"""The store for SQLite: frequent work in statements that take many rows each.

Rare work is left to the portable store.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from django.db import transaction

from ..common.base import is_in_memory
from ..common.store import ORMStore
from .claims import Claims, Gates, Limits
from .daemons import Daemons
from .enqueueing import Enqueueing
from .graphs import GraphEnds, Graphs
from .listener import Listener
from .records import Records
from .removal import Removal
from .sessions import cursor_of, turn

# The modes of Django's connections in which a transaction may write as soon as it has begun.
_WRITING = ("IMMEDIATE", "EXCLUSIVE")
_NOTHING = "UPDATE atp_daemon SET pid = pid WHERE false"


class SQLiteStore(ORMStore):
    """The store contract, with statements of SQLite's own."""

    # The vendor's module always knows one.
    lock_folder: Path

    @cached_property
    def enqueueing(self) -> Enqueueing:
        return Enqueueing(self)

    @cached_property
    def claims(self) -> Claims:
        return Claims(self)

    @cached_property
    def limits(self) -> Limits:
        return Limits(self)

    @cached_property
    def gates(self) -> Gates:
        return Gates(self)

    @cached_property
    def records(self) -> Records:
        return Records(self)

    @cached_property
    def daemons(self) -> Daemons:
        return Daemons(self)

    @cached_property
    def graphs(self) -> Graphs:
        return Graphs(self)

    @cached_property
    def graph_ends(self) -> GraphEnds:
        return GraphEnds(self)

    @cached_property
    def removal(self) -> Removal:
        return Removal(self)

    # Transactions and statements.

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Return a transaction that may write from its beginning, in any mode of the project.

        A transaction that has only read fails at once when it writes, if another has written since:
        no time-out helps.
        """
        # Inside a caller's transaction, the turn has been taken already.
        outermost = not self.connection.in_atomic_block
        with turn(self.alias) if outermost else nullcontext(), transaction.atomic(self.alias):
            if getattr(self.connection, "transaction_mode", None) not in _WRITING:
                self.run(_NOTHING)
            yield

    def select(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    def run(self, statement: str, **parameters: Any) -> int:
        """Execute one statement and return the number of rows written."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(statement, parameters)
            return cursor.rowcount

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each of the rows; a row is a sequence of values."""
        with cursor_of(self.connection) as cursor:
            cursor.executemany(statement, rows)

    # Commits of other connections: a listener notices them.

    def listener(self) -> Listener | None:
        """Return a listener that notices every commit; None for a database in memory."""
        return self._listener(self.lock_folder)

    def commits(self) -> Listener | None:
        """Return a listener that notices commits and is handed no Tasks."""
        return self._listener(None)

    def _listener(self, folder: Path | None) -> Listener | None:
        if is_in_memory(self.connection):
            return None
        name = str(self.connection.settings_dict["NAME"])
        # A file that is gone must not be created anew.
        uri = name if name.startswith("file:") else f"{Path(name).absolute().as_uri()}?mode=rw"
        return Listener(uri, self.file_id, folder)
