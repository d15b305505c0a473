"""Listening for what :mod:`.telling` says, on a connection of its own."""

import select
import time

from django.db import DatabaseError, InterfaceError, connections

# A link that has died says nothing; it is asked so often, in seconds.
CHECK_EVERY = 30.0
# After a failure the next try waits this long, in seconds.
PAUSE = 1.0


class Listener:
    """Waits for notifications. Used by one thread.

    Without a server, or through a pooler that gives a connection to others
    after each transaction, none come; whoever waits polls all the same.
    """

    def __init__(self, alias):
        self._alias = alias
        self._wrapper = None
        self._checked = 0.0

    def wait(self, timeout):
        """Wait for up to ``timeout`` seconds; True as soon as a notification has come."""
        deadline = time.monotonic() + timeout
        try:
            if self._wrapper is None:
                self._listen()
                return True  # what came before nobody has heard
            if time.monotonic() >= self._checked + CHECK_EVERY:
                self._check()
            # What has come along with the answer to a check is here already.
            return self._heard() or self._wait_until(deadline)
        except (DatabaseError, InterfaceError, OSError, ValueError):
            self.close()
            time.sleep(max(0.0, min(PAUSE, deadline - time.monotonic())))
            return False

    def _wait_until(self, deadline):
        left = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self._wrapper.connection], [], [], left)
        return bool(readable) and self._heard()

    def _listen(self):
        wrapper = connections[self._alias].copy()
        # A connection that comes from a pool would have to go back to it.
        wrapper.settings_dict["OPTIONS"].pop("pool", None)
        wrapper.connect()
        with wrapper.cursor() as cursor:
            cursor.execute("LISTEN atp_wake")
        self._wrapper = wrapper
        self._checked = time.monotonic()

    def _check(self):
        with self._wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")
        self._checked = time.monotonic()

    def _heard(self):
        """Take what has come; tells whether anything has. Raises if the connection is gone."""
        with self._wrapper.wrap_database_errors:
            return _taken(self._wrapper.connection)

    def close(self):
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()


def _taken(raw):
    """Take what has come from a driver's connection; tells whether anything has."""
    if not hasattr(raw, "pgconn"):  # psycopg2
        raw.poll()
        heard = bool(raw.notifies)
        raw.notifies.clear()
        return heard
    raw.pgconn.consume_input()
    heard = False
    while raw.pgconn.notifies() is not None:
        heard = True
    return heard
