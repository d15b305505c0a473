"""A worker's own database connections, between one task and the next."""

import threading

from django.db import reset_queries
from django.db.backends.signals import connection_created


class Connections:
    """Those that this thread opens from now on: others' are not ours to touch."""

    def __init__(self):
        self._opened = []
        self._thread = threading.get_ident()
        connection_created.connect(self._add)

    def _add(self, *, connection, **kwargs):
        if threading.get_ident() == self._thread and connection not in self._opened:
            self._opened.append(connection)

    def check(self):
        """See that each lives, so that no handler is given a dead one."""
        for connection in self._opened:
            if connection.connection is not None and not connection.is_usable():
                connection.close()

    def refresh(self):
        """Treat them as at the end of a request.

        Django closes what is past CONN_MAX_AGE or has failed; one that was left
        inside a transaction goes too.
        """
        if not self._opened:
            return
        reset_queries()
        for connection in self._opened:
            if connection.connection is None:
                continue
            if connection.in_atomic_block or connection.needs_rollback:
                # Otherwise Django keeps what it has closed, for the block's end to see.
                connection.in_atomic_block = False
                connection.close()
                continue
            connection.close_if_unusable_or_obsolete()
