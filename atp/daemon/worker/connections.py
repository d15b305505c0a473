"""A worker's own database connections, between one task and the next."""

import threading

from django.db import reset_queries
from django.db.backends.signals import connection_created

from ...conf import settings
from ..system.processes import uptime
from .kept_connection import KeptConnection


class Connections:
    """The connections that this thread opens from now on, and no other's."""

    def __init__(self):
        # By each of Django's connections what is kept for it; None where that cannot be.
        self._opened = {}
        self._thread = threading.get_ident()
        connection_created.connect(self._add)

    def _add(self, *, connection, **kwargs):
        if threading.get_ident() != self._thread:
            return
        if connection not in self._opened:
            self._opened[connection] = KeptConnection.of(connection)
        kept = self._opened[connection]
        if kept is not None:
            kept.opened()

    def with_transaction(self, *, but=None):
        """Return the aliases on which a transaction is open, but one."""
        if not self._opened:
            return []
        return [
            connection.alias
            for connection, kept in self._opened.items()
            if connection.alias != but
            and (connection.in_atomic_block if kept is None else kept.has_transaction())
        ]

    def put_back(self, began=None):
        """Have the next attempt find them as good as new, after one that began then (uptime).

        What cannot be put back is closed, as is what was left inside a transaction.
        """
        if not self._opened:
            return
        reset_queries()
        took = 0.0 if began is None else uptime() - began
        keep = settings.KEEP_CONNECTIONS
        for connection, kept in self._opened.items():
            if connection.connection is None:
                if kept is not None and kept.rests and kept.rested() > keep:
                    kept.let_go()
            elif kept is None:
                _refresh(connection)
            else:
                kept.put_back(took)
                if not keep:
                    kept.let_go()

    def rest(self):
        """Whether there are any that nobody uses."""
        return any(kept is not None and kept.rests for kept in self._opened.values())

    def let_go(self):
        """Close what nobody uses."""
        for kept in self._opened.values():
            if kept is not None:
                kept.let_go()


def _refresh(connection):
    """Treat a connection as at the end of a request: Django closes what is old or has failed."""
    if connection.in_atomic_block or connection.needs_rollback:
        # Without this Django keeps the closed connection for the end of the block.
        connection.in_atomic_block = False
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()
