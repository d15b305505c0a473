"""The state of a worker's process, put back after each task that has changed it."""

import os
import sys
import time
from functools import cache

from .entries import ENTRIES

# Entries that can wait are compared if the last time was so long ago, in seconds.
EVERY = 0.01


class Told:
    """The audit events that Python has told of since they were last forgotten."""

    def __init__(self, names):
        self.heard = False
        self._names = frozenset(names)
        sys.addaudithook(self._hear)

    def _hear(self, event, args):
        if event in self._names:
            self.heard = True


@cache
def _told():
    """Return the one that hears for this process: an audit hook stays for good."""
    return Told(name for each in ENTRIES for name in each.told)


class ProcessState:
    """The state of the process at the moment when this is made: all of the entries.

    It also tells the worker from a copy of it: a handler that forks and lets
    its child return must not have two workers answer.
    """

    def __init__(self, entries=ENTRIES):
        self._pid = os.getpid()
        self._compared = 0.0
        self._told = _told()
        self._found = [(each, (each.first or each.take)()) for each in entries]
        self._arrange()

    def _arrange(self):
        """Have at hand what is compared after each task, and all of it."""
        self._all = [(place, each.take, value) for place, (each, value) in enumerate(self._found)]
        self._urgent = [each for each in self._all if not self._found[each[0]][0].can_wait]

    def restore(self):
        """Put everything back; returns what to say of what could not be. In a copy, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        # This is done after each task.
        now, compared = time.monotonic(), self._urgent
        if self._told.heard or now - self._compared >= EVERY:
            self._compared, self._told.heard, compared = now, False, self._all
        changed = [place for place, take, value in compared if take() != value]
        names = [name for place in changed if (name := self._put_back(place))]
        return f"a handler changed for good: {', '.join(names)}" if names else ""

    def _put_back(self, place):
        entry, before = self._found[place]
        try:
            entry.put_back(before)
            now = entry.take()
        except Exception as error:
            return f"{entry.name} ({error})"
        if entry.keeps:
            self._found[place] = entry, now
            self._arrange()
        return "" if entry.keeps or now == before else entry.name
