"""A worker's own database connections, between one task and the next."""

from django.db import connections, reset_queries


class Connections:
    """Those that handlers have used in this process."""

    def __init__(self):
        self._used = []

    def check(self):
        """See that each lives, so that no handler is given a dead one."""
        for connection in self._used:
            if connection.connection is not None and not connection.is_usable():
                connection.close()

    def refresh(self):
        """Treat them as at the end of a request.

        Django closes what is past CONN_MAX_AGE or has failed; one that was left
        inside a transaction goes too.
        """
        self._used = connections.all(initialized_only=True)
        if not self._used:
            return
        reset_queries()
        for connection in self._used:
            if connection.connection is None:
                continue
            if connection.in_atomic_block or connection.needs_rollback:
                # Otherwise Django keeps what it has closed, for the block's end to see.
                connection.in_atomic_block = False
                connection.close()
                continue
            connection.close_if_unusable_or_obsolete()
