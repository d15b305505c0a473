"""Cursors for the statements of a store.

Django's cursor is a wrapper of the driver's cursor, which traces, logs and counts statements. To
make the wrapper took a fifth of the client's time for an enqueue. If nobody watches the
connection, a store uses the driver's cursor directly.
"""

import os
from asyncio import _get_running_loop
from operator import attrgetter
from pathlib import Path
from threading import get_ident
from types import FunctionType, TracebackType
from typing import Any, Self

import django
from django.apps import apps
from django.conf import settings as project
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper


class Bare:
    """The driver's cursor as a context, with the checks that Django makes before it.

    A database error leaves the context as Django's exception. Inside the context it may still be
    the driver's.
    """

    __slots__ = ("_cursor", "db")

    # Each driver has a cursor and a connection of its own.
    _cursor: Any
    db: Any

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.db = connection

    def __enter__(self) -> Self:
        connection = self.db
        if connection.health_check_enabled:
            connection.close_if_health_check_failed()
        if connection.connection is None:
            connection.ensure_connection()
        if connection._thread_ident != get_ident():
            connection.validate_thread_sharing()
        if connection.needs_rollback:
            connection.validate_no_broken_transaction()
        try:
            self._cursor = self._open(connection.connection)
        except connection.Database.Error as error:
            self.__exit__(type(error), error, error.__traceback__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.db.wrap_database_errors.__exit__(kind, error, traceback)
        # The driver's cursor is freed with this object, and with it the rows that it holds.

    def _open(self, driver: Any) -> Any:
        """Return a cursor of the driver's connection."""
        return driver.cursor()

    def execute(self, sql: str, parameters: Any = None) -> None:
        self._cursor.execute(sql, parameters)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._cursor.fetchall()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount


def is_watched(connection: BaseDatabaseWrapper, backend: type[BaseDatabaseWrapper]) -> bool:
    """Return whether something watches the statements of this connection, or may forbid them.

    That is: Django's log of queries, or an execute wrapper; a tool that has replaced one of
    Django's functions, for all connections or this one; a backend derived from Django's
    ``backend``; apps that are not ready, of which Django warns; an event loop, in which Django
    refuses to work unless it is told otherwise.
    """
    return (
        type(connection) is not backend
        or (connection.force_debug_cursor or (_ASKED.get("DEBUG", True) and project.DEBUG))
        or bool(connection.execute_wrappers)
        or not vars(connection).keys().isdisjoint(_FROM_CONNECTION)
        or not _are_of_django(backend, _of_connection(backend), _of_cursor(CursorWrapper))
        or not apps.ready
        or (_get_running_loop() is not None and not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"))
    )


# The functions of Django through which a connection reaches the driver.
_FROM_CONNECTION = ("cursor", "_cursor", "create_cursor", "make_cursor", "ensure_connection")
_of_connection = attrgetter(*_FROM_CONNECTION)
_of_cursor = attrgetter("execute", "_execute", "_execute_with_wrappers")


_FOLDER = str(Path(django.__file__).parent)
# The settings that have been read since they last changed: Django caches them here. A look at
# this dict takes a tenth of the time of reading a setting.
_ASKED = vars(project)


def _are_of_django(backend: type[BaseDatabaseWrapper], *functions: tuple[Any, ...]) -> bool:
    """Return whether these functions are defined in Django's own files."""
    if _SEEN.get(backend) != functions:
        found = all(
            type(function) is FunctionType and function.__code__.co_filename.startswith(_FOLDER)
            for part in functions
            for function in part
        )
        if not found:
            return False
        _SEEN[backend] = functions
    return True


# The functions last found to be Django's own, by backend.
_SEEN: dict[type[BaseDatabaseWrapper], tuple[tuple[Any, ...], ...]] = {}
