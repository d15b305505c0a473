"""A worker's database connections, and their reset between one task and the next."""

import threading

from django.db import reset_queries
from django.db.backends.signals import connection_created

from ...conf import settings
from ..system.processes import uptime
from .kept_connection import KeptConnection, leave_blocks


class Connections:
    """The connections that this thread, and no other, opens from now on."""

    def __init__(self):
        # The KeptConnection of each Django connection; None if its vendor has none.
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
        """Return the aliases of the connections with an open transaction, without ``but``."""
        if not self._opened:
            return []
        return [
            connection.alias
            for connection, kept in self._opened.items()
            if connection.alias != but
            and (connection.in_atomic_block if kept is None else kept.has_transaction())
        ]

    def put_back(self, began=None):
        """Reset the connections for the next attempt; the last one began at uptime ``began``.

        A connection that cannot be reset, or was left inside a transaction, is closed.
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
        """Tell whether any kept connection is unused."""
        return any(kept is not None and kept.rests for kept in self._opened.values())

    def let_go(self):
        """Close the kept connections that are unused."""
        for kept in self._opened.values():
            if kept is not None:
                kept.let_go()


def _refresh(connection):
    """Close a connection that is old, has failed or is in a transaction, as after a request."""
    if connection.in_atomic_block or connection.needs_rollback:
        leave_blocks(connection)
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()
