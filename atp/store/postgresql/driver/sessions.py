"""The facts that are known of a connection's session with the server."""

import time
from collections import Counter
from weakref import WeakKeyDictionary

# A kept plan is thrown away after this, in seconds: the tables may have grown.
KEEP = 60.0


class Session:
    """``driver`` is the driver's connection: another one is another session."""

    def __init__(self, driver):
        self.driver = driver
        # How often each statement was executed, and which are prepared.
        self.uses = Counter()
        self.prepared = set()
        # Whether the server keeps what is prepared, plans as for a daemon, and stands behind
        # a pooler; None if that is not known yet.
        self.keeps = None
        self.plans_own_way = None
        self.is_pooled = None
        # How long a statement waits for a lock of others, in seconds; None is without end.
        self.lock_timeout = None
        # Whether nodes of graphs, or what has hooks, were among what it has recorded last.
        self.meets_settled = False
        self.planned = time.monotonic()
        self._kept = []

    def is_stale(self):
        """Whether the plans are to be made anew; from now on they are new."""
        now = time.monotonic()
        if now - self.planned < KEEP:
            return False
        self.planned = now
        return True

    def take_cursor(self):
        """Return the driver's cursor that was kept, and keep it no longer; or None."""
        try:
            cursor, factory = self._kept.pop()
        except IndexError:
            return None
        # Who traces a driver has it make others.
        return cursor if factory is self.driver.cursor_factory else None

    def keep_cursor(self, cursor):
        """Keep it for the next."""
        self._kept.append((cursor, self.driver.cursor_factory))


# By Django's connection.
_SESSIONS = WeakKeyDictionary()


def session_of(connection):
    """Return the :class:`Session` that one of Django's connections, which is open, has now."""
    session = _SESSIONS.get(connection)
    if session is None or session.driver is not connection.connection:
        session = _SESSIONS[connection] = Session(connection.connection)
    return session
