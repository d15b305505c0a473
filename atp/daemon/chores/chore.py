"""Chores: the periodic jobs of a dispatcher, beside its Tasks."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from ...conf import settings
from ..system.processes import uptime

# The seconds that a call should take at most, by vendor: SQLite has only one writer, and a daemon
# cuts calls that take over STATEMENT_TIMEOUT.
LONG, LONG_BY_VENDOR = 1.0, {"sqlite": 0.25}
# The longest rest between two portions, in seconds.
LONGEST_REST = 0.2


class Portion:
    """The number of rows that a chore takes at once; ``size`` adapts to the time that they take.

    A call that takes too long makes it smaller, and so does one that fails, since the daemon cuts
    a call that takes over STATEMENT_TIMEOUT: so the next call does not fail at the same rows. Quick
    calls make it larger again, up to ``most``.
    """

    def __init__(self, first: int, most: int) -> None:
        self.size = first
        # The seconds for which the chore should rest before it takes more, so that others get
        # their turn: its neighbours in the thread, and on SQLite the other writers.
        self.rest = 0.0
        self._most = most
        self._long = LONG_BY_VENDOR.get(connections[settings.DATABASE].vendor, LONG)

    @contextmanager
    def measured(self) -> Iterator[int]:
        """Give the number of rows for the call in this block, and adapt it to the call."""
        began = uptime()
        try:
            yield self.size
        except BaseException:
            self._shrink()
            raise
        seconds = uptime() - began
        self.rest = min(LONGEST_REST, seconds)
        if seconds > self._long:
            self._shrink()
        elif seconds < self._long / 3:
            self.size = min(self._most, 2 * self.size)

    def _shrink(self) -> None:
        self.size = max(1, self.size // 2)


class Chore:
    """One entry of the table of chores.

    ``name`` is the name of its timer. ``doing`` describes the chore in the log. ``every()``
    returns its interval in seconds; a chore without an interval runs when a look at the queue
    has found a reason for it (see :mod:`.looking`). ``may()`` says whether it may run now.

    A chore of the event loop has a ``run()``. Any other chore has a ``call()``, which returns
    a function for a database thread; afterwards the event loop calls ``done(result)``. A chore
    with a ``failed(result)`` handles its own failure, and the daemon keeps its identity.
    Without one, a failure ends the daemon's identity.
    """

    name = doing = ""
    # The number of seconds by which it may run before it is due.
    early = 0.0
    failed = None

    def __init__(self, core, attempts=None, orders=None):
        self.core = core
        self.attempts = attempts
        self.orders = orders

    def every(self):
        """Return the interval of the chore in seconds, or None."""

    def may(self):
        return True

    def is_due(self):
        """Tell whether the chore is due; if so, set its timer to one interval from now."""
        every = self.every()
        if every is None:
            return self.may() and self._was_wanted()
        return self.may() and self.core.timers.due(self.name, every, self.early)

    def _was_wanted(self):
        """Tell whether a look has found a reason for the chore, and forget the reason."""
        is_wanted = self.name in self.core.queue.chores
        self.core.queue.chores.discard(self.name)
        return is_wanted

    def again(self):
        """Make a chore without an interval run once more."""
        self.core.queue.chores.add(self.name)

    def run(self):
        """Run the chore on the event loop, without a call to the database."""
        raise NotImplementedError

    def call(self):
        raise NotImplementedError

    def done(self, result):
        """Take the result of the call; by default, do nothing."""


def run_due(chores):
    """Run the chores of the event loop that are due."""
    for chore in chores:
        if chore.is_due():
            chore.run()


class Chores:
    """The chores of one thread, in the order of their importance."""

    def __init__(self, thread, chores):
        self._thread = thread
        self._chores = chores

    def turn(self):
        """Start the first chore that is due, if the thread is free; return whether one started."""
        if self._thread.busy:
            return False
        for chore in self._chores:
            if chore.is_due():
                self._thread.submit(chore.doing, chore.call(), chore.done, chore.failed)
                return True
        return False
