"""Processes that a handler has started and not ended: they end with its attempt."""

import os

from ....words import attempt_messages
from ...system import descendants, processes
from . import pools


class Leftovers:
    """Processes below this one. Those that are there when it is made are left alone."""

    def __init__(self):
        self._kept = frozenset()
        self.keep()

    def keep(self):
        """Leave alone, from now on, what runs now."""
        self._kept = frozenset(self._found()) if has_children() else frozenset()

    def end(self):
        """End what an attempt has left; returns what to say of it, "" if there was nothing.

        Raises Unkillable if some of it could not be ended.
        """
        spared = pools.settle() | pools.helpers()
        return self._end(spared)

    def _end(self, spared):
        self._reap()
        killed, living = descendants.end(lambda: self._without(spared), self._reap)
        if living:
            raise Unkillable(_message(living, ended=False))
        return _message(killed, ended=True) if killed else ""

    def _found(self):
        own = os.getpid()
        # The processes below a kept process are its own affair.
        return {each.pid: each for each in descendants.descendants([own], sparing=self._kept)[own]}

    def _without(self, spared):
        return {pid: each for pid, each in self._found().items() if pid not in spared}

    def _reap(self):
        """Bury the dead, but none whose end somebody may still ask for."""
        helpers = pools.helpers()
        for each in self._found().values():
            if each.is_dead and each.parent == os.getpid() and each.pid not in helpers:
                os.waitpid(each.pid, os.WNOHANG)


class Unkillable(Exception):
    """Processes that an attempt left behind are still there."""


def has_children():
    """Whether this process has any children, dead ones included: one call into the kernel."""
    if not processes.LINUX:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _message(entries, *, ended):
    names = sorted({each.name for each in entries.values()})
    return attempt_messages.left_behind(names, len(entries), ended=ended)
