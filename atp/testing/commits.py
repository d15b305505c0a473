"""Commits: the moments when daemons would see an enqueue, even if a test never commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connections, transaction

# The methods of a Django connection that after_commit() replaces.
_METHODS = ("savepoint_commit", "savepoint_rollback")
# Stands for the savepoint of a block that has none: for such a block Django calls no method.
_NONE = "no savepoint"


def after_commit(alias: str, call: Callable[[], object]) -> None:
    """Call ``call()`` at the outermost commit, or at once if no transaction is open.

    The transactions of TestCase do not count: they are never committed. Inside them each
    ``atomic()`` of the tested code is a savepoint, and the end of the outermost one counts as
    the commit.
    """
    connection: Any = connections[alias]
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        call()
    elif not any(_is_of_test(block) for block in connection.atomic_blocks):
        if not any(function is call for _, function, _ in connection.run_on_commit):
            transaction.on_commit(call, using=alias)
    elif "savepoint_commit" not in vars(connection):
        connection.savepoint_commit = partial(_commit, connection, call)
        connection.savepoint_rollback = partial(_rollback, connection)
        # All blocks but the outermost of all have an entry.
        tested = [not _is_of_test(block) for block in connection.atomic_blocks].index(True) - 1
        if connection.savepoint_ids[tested] is None:
            connection.savepoint_ids[tested] = _NONE


def forget(alias: str) -> None:
    """Cancel the call that waits for the end of a savepoint."""
    connection: Any = connections[alias]
    for name in _METHODS:
        vars(connection).pop(name, None)
    ids = connection.savepoint_ids
    ids[:] = [None if sid == _NONE else sid for sid in ids]


def _commit(connection: Any, call: Callable[[], object], sid: str) -> None:
    """Release a savepoint, whose block the connection has left; call if it was the outermost."""
    if sid != _NONE:
        type(connection).savepoint_commit(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)
        call()


def _rollback(connection: Any, sid: str) -> None:
    if sid == _NONE:
        connection.needs_rollback = True
        # Django releases it afterwards.
        connection.savepoint_commit = lambda _: forget(connection.alias)
        return
    type(connection).savepoint_rollback(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)


def _is_of_test(block: Any) -> bool:
    return bool(block._from_testcase)
