"""The known facts about a connection's session with the server."""

import time
from collections import Counter
from weakref import WeakKeyDictionary

# In seconds: older plans are thrown away, since the tables may have grown.
KEEP = 60.0


class Session:
    """A session; ``driver`` is the driver's connection. A new connection is a new session."""

    def __init__(self, driver):
        self.driver = driver
        # The number of executions of each statement, and the names of those prepared.
        self.uses = Counter()
        self.prepared = set()
        # Whether the server keeps prepared statements, whether it plans as for a daemon, and
        # whether there is a pooler; None until it is known.
        self.keeps = None
        self.plans_own_way = None
        self.is_pooled = None
        # In seconds: how long a statement waits for a lock of another session; None is no limit.
        self.lock_timeout = None
        # Whether this session last recorded graph nodes, or Instances with hooks.
        self.meets_settled = False
        self.planned = time.monotonic()
        self._kept = []

    def is_stale(self):
        """Return whether the plans must be made anew; from now on they count as new."""
        now = time.monotonic()
        if now - self.planned < KEEP:
            return False
        self.planned = now
        return True

    def take_cursor(self):
        """Return the kept cursor of the driver, which is kept no longer; None if there is none."""
        try:
            cursor, factory = self._kept.pop()
        except IndexError:
            return None
        # A tracing tool may have replaced the cursor factory meanwhile.
        return cursor if factory is self.driver.cursor_factory else None

    def keep_cursor(self, cursor):
        """Keep a cursor for the next statement."""
        self._kept.append((cursor, self.driver.cursor_factory))


# Sessions by Django's connection.
_SESSIONS = WeakKeyDictionary()


def session_of(connection):
    """Return the current :class:`Session` of one of Django's connections, which must be open."""
    session = _SESSIONS.get(connection)
    if session is None or session.driver is not connection.connection:
        session = _SESSIONS[connection] = Session(connection.connection)
    return session
