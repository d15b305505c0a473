"""How many clients may wait for the end of an Instance, in one process and of one user.

And how many threads they take, those included who are only told that they may not.
"""

import math
import os
import threading
import time
from contextlib import contextmanager
from math import ceil

from django.db import connections

from ...conf import settings
from ..queries import LONGEST_WAIT

# Requests that wait read the database before and afterwards: so many at once, whatever
# the number of threads. Each of them has a connection.
LOOKS = 2
# Who has taken a place has to begin to wait within this, in seconds: a client may hang up
# before, and then nobody gives the place back.
BEGINS_WITHIN = 5.0


class PerProcess:
    """Begins anew in a process that is forked."""

    def __init__(self):
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self):
        self._lock = threading.Lock()


class Slots(PerProcess):
    """The places for those who wait; ``total`` and ``per_user`` name settings.

    A place is freed when its time is over, whatever has become of who took it.
    """

    def __init__(self, total, per_user):
        self._total, self._per_user = total, per_user
        super().__init__()

    def _begin(self):
        super()._begin()
        self._taken = {}

    def take(self, user):
        """Return a token for :meth:`keep` and :meth:`free`, or None if all places are taken."""
        key = type(user), getattr(user, "pk", None) or str(user)
        now = time.monotonic()
        with self._lock:
            self._taken = {t: taken for t, taken in self._taken.items() if taken[1] > now}
            own = sum(1 for owner, _ in self._taken.values() if owner == key)
            if len(self._taken) >= getattr(settings, self._total):
                return None
            if own >= getattr(settings, self._per_user):
                return None
            token = object()
            self._taken[token] = key, now + BEGINS_WITHIN
            return token

    def keep(self, token, seconds):
        """Keep a place while its client waits."""
        with self._lock:
            if token in self._taken:
                key, _ = self._taken[token]
                self._taken[token] = key, time.monotonic() + seconds

    def free(self, token):
        """Give a place back; one that has been freed already is no matter."""
        with self._lock:
            self._taken.pop(token, None)

    def __len__(self):
        """How many are taken."""
        return len(self._taken)


IN_THREADS = Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
ASYNC = Slots("MAX_ASYNC_WAITERS", "MAX_ASYNC_WAITERS_PER_USER")


class Threads(PerProcess):
    """The threads of one process that requests with ``?wait=`` take, asleep or not."""

    def _begin(self):
        super()._begin()
        self._count = 0

    @contextmanager
    def one(self, most=math.inf):
        """Count this thread, unless ``most`` are counted already; gives whether it is."""
        with self._lock:
            is_counted = self._count < most
            self._count += is_counted
        try:
            yield is_counted
        finally:
            with self._lock:
                self._count -= is_counted


THREADS = Threads()


def most_threads():
    """How many threads may be taken: by those who wait, and by those who look whether they may."""
    return settings.MAX_WAITERS + LOOKS


_looks = threading.BoundedSemaphore(LOOKS)


@contextmanager
def look():
    """Read the database, as one of few; a connection that is not to be kept is closed then."""
    with _looks:
        try:
            yield
        finally:
            for connection in _free_connections():
                connection.close_if_unusable_or_obsolete()


def let_connections_go():
    """Close the connections of this thread, those that are to be kept too."""
    for connection in _free_connections():
        connection.close()


def _free_connections():
    """The connections of this thread, but those in a transaction."""
    found = connections.all(initialized_only=True)
    return [connection for connection in found if not connection.in_atomic_block]


# Nobody is to ask again sooner, in seconds, unless it wants to wait for less.
SOONEST = 5
# So many a second are to ask one process again.
RATE = 4


class Turns(PerProcess):
    """Gives each its turn, so that a crowd does not come back at once, nor in step."""

    def _begin(self):
        super()._begin()
        self._last = 0.0

    def take(self, seconds=LONGEST_WAIT):
        """Return after how many seconds to ask again: not later than a wait of ``seconds``."""
        now = time.monotonic()
        with self._lock:
            turn = max(now + SOONEST, self._last + 1 / RATE)
            self._last = min(turn, now + LONGEST_WAIT)
            return max(1, ceil(min(seconds, self._last - now)))


turns = Turns()
