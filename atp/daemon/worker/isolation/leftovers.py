"""Leftovers: processes that a handler has started and left running. They end with its attempt."""

import contextlib
import os

from .... import messages
from ...system import descendants, processes
from . import pools


class Leftovers:
    """The descendants of this process, except those that ran when this object was made."""

    def __init__(self):
        self._kept = frozenset()
        self.keep()

    def keep(self):
        """Remember the processes that run now: end() does not kill them."""
        self._kept = frozenset(self._found()) if has_children() else frozenset()

    def end(self):
        """Kill the processes that an attempt has left; return a message, "" if there were none.

        Raises Unkillable if some of them could not be killed.
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
        # The descendants of a kept process are spared too.
        return {each.pid: each for each in descendants.descendants([own], sparing=self._kept)[own]}

    def _without(self, spared):
        return {pid: each for pid, each in self._found().items() if pid not in spared}

    def _reap(self):
        """Reap dead children, except helpers, whose exit status a library may still want."""
        helpers = pools.helpers()
        for each in self._found().values():
            if each.is_dead and each.parent == os.getpid() and each.pid not in helpers:
                # A thread of a library may have reaped it since.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each.pid, os.WNOHANG)


class Unkillable(Exception):
    """Some processes that an attempt has left behind could not be killed."""


def has_children():
    """Tell, with one system call, whether this process has any children, dead ones included."""
    if not processes.LINUX:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _message(entries, *, ended):
    names = sorted({each.name for each in entries.values()})
    return messages.processes_left_behind(names, len(entries), ended=ended)
