"""Commits: when what code enqueues would be seen by daemons, also where a test never commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connections, transaction

# As the methods of Django's connections are called.
_METHODS = ("savepoint_commit", "savepoint_rollback")


def after_commit(alias: str, call: Callable[[], object]) -> None:
    """Call it at the outermost commit; at once where no transaction is open.

    The transactions of TestCase do not count: they are never committed. Inside of them a block
    of the code that is tested is a savepoint, and the end of its outermost one is the commit.
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


def forget(alias: str) -> None:
    """Let nothing be called later."""
    for name in _METHODS:
        vars(connections[alias]).pop(name, None)


def _commit(connection: Any, call: Callable[[], object], sid: str) -> None:
    """Release a savepoint; its block is none of the connection's any more."""
    type(connection).savepoint_commit(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)
        call()


def _rollback(connection: Any, sid: str) -> None:
    type(connection).savepoint_rollback(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)


def _is_of_test(block: Any) -> bool:
    return bool(block._from_testcase)
