"""The state of a worker's process, put back after each task that has changed it."""

import os
import time

from .entries import ENTRIES

# Entries that are slow to take are compared if the last time was so long ago, in seconds.
EVERY = 0.01


class ProcessState:
    """The state of the process at the moment when this is made: all of the entries.

    It also tells the worker from a copy of it: a handler that forks and lets
    its child return must not have two workers answer.
    """

    def __init__(self, entries=ENTRIES):
        self._pid = os.getpid()
        self._compared = 0.0
        self._found = [(each, (each.first or each.take)()) for each in entries]

    def restore(self):
        """Put everything back; returns what to say of what could not be. In a copy, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        # This is done after each task.
        now = time.monotonic()
        skips = now - self._compared < EVERY
        if not skips:
            self._compared = now
        changed = [
            place
            for place, (each, value) in enumerate(self._found)
            if not (skips and each.is_slow) and each.take() != value
        ]
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
        return "" if entry.keeps or now == before else entry.name
