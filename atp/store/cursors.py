"""Cursors that the statements of a store are executed with.

Django's is a driver's cursor with a shell around it, through which it is traced, logged
and counted. To make one took the client a fifth of what it has to do for an enqueue.
Where nobody looks, the driver's is taken as it is.
"""

import os
from asyncio import _get_running_loop
from operator import attrgetter
from pathlib import Path
from threading import get_ident
from types import FunctionType

import django
from django.apps import apps
from django.conf import settings as project
from django.db.backends.utils import CursorWrapper


class Bare:
    """The driver's cursor as a context; as much is checked before as by Django.

    What the database refuses leaves the context as Django's exception. Inside, it may
    still be the driver's.
    """

    __slots__ = ("_cursor", "db")

    def __init__(self, connection):
        self.db = connection

    def __enter__(self):
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

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            self.db.wrap_database_errors.__exit__(kind, error, traceback)
        # Else it goes with this object, and what it holds with it.

    def _open(self, driver):
        """Return a cursor of the driver's connection."""
        return driver.cursor()

    def execute(self, sql, parameters=None):
        self._cursor.execute(sql, parameters)

    def fetchone(self):
        return self._cursor.fetchone()

    def fetchall(self):
        return self._cursor.fetchall()

    @property
    def rowcount(self):
        return self._cursor.rowcount


def is_watched(connection, backend):
    """Whether anything may want to see what this connection executes, or to forbid it.

    Django's log of queries and wrappers of execution; what a tool has put in the place
    of one of Django's functions, for all connections or for this one; a backend that
    is made from Django's ``backend``; apps that are not ready, of which Django warns; and
    an event loop, in which it refuses to unless it is told otherwise.
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


# Functions of Django that lead from a connection to the driver.
_FROM_CONNECTION = ("cursor", "_cursor", "create_cursor", "make_cursor", "ensure_connection")
_of_connection = attrgetter(*_FROM_CONNECTION)
_of_cursor = attrgetter("execute", "_execute", "_execute_with_wrappers")


_FOLDER = str(Path(django.__file__).parent)
# What has been asked of the project's settings since they were last changed: Django keeps
# it there. To ask them takes ten times as long.
_ASKED = vars(project)


def _are_of_django(backend, *functions):
    """Whether all are as they stand in Django's files."""
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


# Those that were looked at last, and were, by backend.
_SEEN = {}
