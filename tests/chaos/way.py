"""The way of one daemon to PostgreSQL, which can be closed while it stays open for others."""

import contextlib
import os

from django.db import DatabaseError, InterfaceError, connection

SOCKET = ".s.PGSQL.5432"


class Way:
    """A folder of its own in which the server's socket is found, as long as it is open."""

    def __init__(self, server, number):
        self._name = f"way-{number}"
        self._folder = server.folder.parent / self._name
        self._socket = server.folder / SOCKET
        self._folder.mkdir()
        self.open()
        self.url = f"{server.url_at(self._folder)}&application_name={self._name}"

    def open(self):
        self.is_open = True
        with contextlib.suppress(FileExistsError):
            os.symlink(self._socket, self._folder / SOCKET)

    def close(self):
        """Let nobody pass any more, and end the connections that there are; returns how many."""
        self.is_open = False
        (self._folder / SOCKET).unlink(missing_ok=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = %s",
                    [self._name],
                )
                return cursor.fetchone()[0]
        except (DatabaseError, InterfaceError):
            return 0  # the database is away from everybody
