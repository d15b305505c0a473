"""The state of a worker's process, put back after each task that has changed it."""

import os
import sys
import time
from contextlib import suppress
from functools import cache
from operator import call

from .entries import ENTRIES

# Entries that can wait are compared if the last time was so long ago, in seconds; and where
# another has changed.
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
    """Return the :class:`Told` of this process. There is one, as an audit hook stays for good."""
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
        self._found = [(each, [each.first()] if each.first else each.take()) for each in entries]
        self._arrange()

    def _arrange(self):
        """Have at hand what is compared after each task: one list of values with another."""
        urgent = [(each, values) for each, values in self._found if not each.can_wait]
        self._parts = [part for each, _ in urgent for part in each.parts]
        self._values = [value for _, values in urgent for value in values]

    def restore(self):
        """Put everything back; returns what to say of what could not be. In a copy, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        # This is done after each task.
        now = time.monotonic()
        if self._told.heard or now - self._compared >= EVERY:
            self._compared, self._told.heard = now, False
        elif self._is_as_it_was():
            return ""
        names = [name for place in range(len(self._found)) if (name := self._put_back(place))]
        return f"a handler changed for good: {', '.join(names)}" if names else ""

    def _is_as_it_was(self):
        """Tell whether the entries that cannot wait are unchanged.

        A handler may have removed what is read, or put an object there that cannot be compared.
        """
        try:
            return [*map(call, self._parts)] == self._values
        except BaseException:  # even SystemExit does not end the worker
            return False

    def _put_back(self, place):
        """Put an entry back if it has changed; returns its name if that was in vain."""
        entry, before = self._found[place]
        with suppress(BaseException):
            if entry.take() == before:
                return ""
        try:
            entry.put_back(*before)
            now = entry.take()
        except Exception as error:
            return f"{entry.name} ({error})"
        if entry.keeps:
            self._found[place] = entry, now
            self._arrange()
        return "" if entry.keeps or now == before else entry.name
