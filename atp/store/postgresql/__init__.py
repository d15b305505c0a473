"""The store for PostgreSQL: frequent work in one statement each.

Rare work is left to the portable store.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from django.db import DataError, transaction
from django.db.backends.postgresql.base import DatabaseWrapper

from ..common.store import ORMStore
from .claims import Claims, Limits
from .daemons import Daemons, Gates, Listener
from .enqueueing import Enqueueing
from .graphs import GraphEnds, Graphs
from .records import Records, Steps
from .removal import Inputs, Removal
from .sessions import of_session, of_transaction, session_of
from .statements import cursor_of, execute, has_code, is_pooled, refuse_characters, waiting

# The server's error code for a statement that has waited too long for a lock.
_LOCK_NOT_AVAILABLE, _DEADLOCK = "55P03", "40P01"


class PostgreSQLStore(ORMStore):
    """The store contract, with statements of PostgreSQL's own."""

    connection: DatabaseWrapper

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
    def steps(self) -> Steps:
        return Steps(self)

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
    def inputs(self) -> Inputs:
        return Inputs(self)

    @cached_property
    def removal(self) -> Removal:
        return Removal(self)

    # Locks of other sessions: a daemon waits for them only a moment.

    def limit_waiting(self, seconds: float) -> None:
        self.connection.ensure_connection()
        session = session_of(self.connection)
        if session.lock_timeout == seconds:
            return
        with cursor_of(self.connection) as cursor:
            if not is_pooled(cursor):
                version = self.connection.pg_version
                cursor.execute(f"{of_session(version)}; {waiting('SET', seconds)}")
        session.lock_timeout = seconds

    @contextmanager
    def atomic(self) -> Iterator[None]:
        is_outermost = not self.connection.in_atomic_block
        try:
            with super().atomic():
                session = session_of(self.connection)
                if session.lock_timeout is not None and session.is_pooled:
                    # Behind a pooler, each transaction may run in another backend.
                    own = of_transaction(self.connection.pg_version, is_outermost=is_outermost)
                    with cursor_of(self.connection) as cursor:
                        cursor.execute(f"{own}; {waiting('SET LOCAL', session.lock_timeout)}")
                yield
        except DataError as error:
            refuse_characters(error)
            raise

    def is_lock(self, error: BaseException) -> bool:
        return has_code(error, _LOCK_NOT_AVAILABLE)

    def is_deadlock(self, error: BaseException) -> bool:
        return has_code(error, _DEADLOCK)

    # Telling idle daemons that a Task waits.

    def tell(self) -> None:
        connection = self.connection
        if not connection.in_atomic_block:
            self._notify()
            return
        if getattr(connection.atomic_blocks[0], "_from_testcase", False):
            return  # a test's own transaction is never committed, and tests count what waits for it
        # Notify at commit, once: which daemons are idle then is known only then.
        waiting = connection.run_on_commit
        if not waiting or waiting[-1][1] != self._notify:
            transaction.on_commit(self._notify, using=self.alias, robust=True)

    def _notify(self) -> None:
        with cursor_of(self.connection) as cursor:
            execute(cursor, "notify", {})

    def listener(self) -> Listener:
        return Listener(self.alias)
