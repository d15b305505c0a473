"""Isolation: a handler in a test finds its connections as in a worker: without a transaction.

If the test has a transaction open, each attempt runs inside a savepoint of it. The handler's
``on_commit()`` callbacks are called when the handler has ended. If the database refuses a
statement of the handler, only that savepoint is rolled back.
"""

from __future__ import annotations

import logging
from typing import Any, Self

from django.db import connections, transaction

from ...conf import settings
from ..errors import NotPossible

logger = logging.getLogger("atp.worker")

# The driver's status of a transaction in which a statement has failed.
_IN_ERROR = 3


class Isolation:
    """A context manager around one attempt, entered in the thread that runs the handler."""

    def __init__(self) -> None:
        self._guarded: dict[str, _Guarded] = {}

    def __enter__(self) -> Self:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                self._guarded[connection.alias] = _Guarded(connection)
        return self

    def __exit__(self, *raised: object) -> None:
        for guarded in self._guarded.values():
            guarded.end()
        for connection in connections.all(initialized_only=True):
            if connection.alias not in self._guarded and _has_transaction(connection):
                _end_transaction(connection)

    def is_inside(self) -> bool:
        """Whether the handler has a transaction open on the queue's database."""
        return self._is_open(connections[settings.DATABASE])

    def left_open(self, *, but: str | None = None) -> list[str]:
        """Return the aliases, except ``but``, on which the handler has a transaction open."""
        found = connections.all(initialized_only=True)
        return [each.alias for each in found if each.alias != but and self._is_open(each)]

    def _is_open(self, connection: Any) -> bool:
        guarded = self._guarded.get(connection.alias)
        return _has_transaction(connection) if guarded is None else guarded.is_open

    def handler_ended(self, error: BaseException | None, *, but: str | None = None) -> None:
        """Call the handler's ``on_commit()`` callbacks on all databases except ``but``.

        Raises NotPossible if the handler raised nothing, but left the test's transaction
        unusable.
        """
        for alias, guarded in self._guarded.items():
            if alias != but and not guarded.is_open:
                guarded.after_commits()
            if error is None and guarded.is_broken:
                raise NotPossible(
                    "The database has refused a statement of this handler, which went on. Here "
                    "that is the end of the test's transaction, of which the handler is a part: "
                    "put that statement into transaction.atomic(), or use TransactionTestCase."
                )

    def after_commits(self, alias: str) -> None:
        """Call the ``on_commit()`` callbacks of a transactional attempt, after its commit."""
        guarded = self._guarded.get(alias)
        if guarded is not None and not guarded.is_open:
            guarded.after_commits()


class _Guarded:
    """A connection on which a test has a transaction open."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._block: Any = transaction.atomic(using=connection.alias)
        # Marked as a block of TestCase, so that a durable block may be inside it.
        self._block._from_testcase = True
        self._block.__enter__()
        self._depth = len(connection.atomic_blocks)
        self._savepoints = len(connection.savepoint_ids)
        self._callbacks = len(connection.run_on_commit)
        self.is_kept = True

    @property
    def is_open(self) -> bool:
        return len(self._connection.atomic_blocks) > self._depth

    @property
    def is_broken(self) -> bool:
        info = getattr(self._connection.connection, "info", None)
        return self._connection.needs_rollback or (
            getattr(info, "transaction_status", None) == _IN_ERROR
        )

    def after_commits(self) -> None:
        """Call the ``on_commit()`` callbacks of the handler, in order."""
        while not self.is_broken and len(self._connection.run_on_commit) > self._callbacks:
            _, function, is_robust = self._connection.run_on_commit.pop(self._callbacks)
            try:
                function()
            except Exception:
                if not is_robust:
                    raise
                logger.exception("after a commit")

    def end(self) -> None:
        """Leave the savepoint: the test's transaction goes on."""
        connection = self._connection
        if self.is_open:
            del connection.atomic_blocks[self._depth :]
            del connection.savepoint_ids[self._savepoints :]
            self.is_kept = False
        del connection.run_on_commit[self._callbacks :]
        if not self.is_kept or self.is_broken:
            connection.needs_rollback = True
        self._block.__exit__(None, None, None)


def _has_transaction(connection: Any) -> bool:
    is_manual = connection.connection is not None and not connection.get_autocommit()
    return connection.in_atomic_block or is_manual


def _end_transaction(connection: Any) -> None:
    """Roll back the transaction that a handler left open, without closing the connection.

    A database in memory would be lost with its connection.
    """
    connection.in_atomic_block = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks = [], []
    connection.run_on_commit = []
    connection.rollback()
    connection.set_autocommit(True)
