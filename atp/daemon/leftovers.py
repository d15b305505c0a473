"""What a handler has started and not ended: its attempt is not over while that runs."""

import os
import sys

from . import descendants, processes

# Of more than these only the number is told.
NAMED = 5


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
        self._reap()
        helpers = _helpers()
        killed, living = descendants.end(
            lambda: {pid: each for pid, each in self._found().items() if pid not in helpers},
            self._reap,
        )
        if living:
            raise Unkillable(_words(living, "could not be ended"))
        return _words(killed, "were ended") if killed else ""

    def _found(self):
        own = os.getpid()
        # What is below a process that is kept is its own affair.
        return {each.pid: each for each in descendants.descendants([own], sparing=self._kept)[own]}

    def _reap(self):
        """Bury the dead, but none whose end somebody may still ask for."""
        helpers = _helpers()
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


def _helpers():
    """Python's own, which keep no part of a task: who needs them expects them to stay."""
    found = set()
    for module, name, pid in (
        ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
        ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
    ):
        helper = getattr(sys.modules.get(module), name, None)
        found.add(getattr(helper, pid, None))
    return found


def _words(entries, what):
    names = sorted({each.name for each in entries.values()})
    named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    count = len(entries)
    if count == 1:
        what = what.replace("were", "was")
        return f"1 process that it left behind {what}: {named}"
    return f"{count} processes that it left behind {what}: {named}"
