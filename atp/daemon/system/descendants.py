"""Processes that were started below a process of ours: finding and ending them. Linux only."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from .processes import LINUX, kill

# Programs that a handler starts inherit this, with the name of their daemon.
MARK = "ATP_DAEMON"
# To end what was found is tried for so long, in seconds: what is in an
# uninterruptible sleep dies when it wakes.
PATIENCE = 1.0
# A resource tracker may take so long to remove what its clients have left, in seconds.
TRACKERS_PATIENCE = 1.0
# It is a Python of multiprocessing, or of loky, that was started with this.
_TRACKER = b".resource_tracker import main"
# A process that is killed at the very end may take so long to die, in seconds.
MOMENT = 0.05


class Entry(NamedTuple):
    """A process in the system's table; ``name`` is what ps shows."""

    pid: int
    parent: int
    session: int
    name: str
    is_dead: bool


def table():
    """Return every process by its pid, also those that are dead and not reaped."""
    found = {}
    with contextlib.suppress(OSError):  # no /proc, or no descriptor left to look at it
        for number in os.listdir("/proc"):
            if number.isdigit() and (text := _read(f"/proc/{number}/stat")):
                # The name, in parentheses, may hold anything; what follows is regular.
                head, _, rest = text.rpartition(b")")
                state, parent, _, session, _ = rest.split(maxsplit=4)
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                found[int(number)] = Entry(
                    int(number), int(parent), int(session), name, state in b"ZX"
                )
    return found


def _read(path):
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def children(pid):
    """Return the living children of a process."""
    return [each.pid for each in table().values() if each.parent == pid and not each.is_dead]


def descendants(pids, *, sparing=()):
    """Return the entries below each of these processes, by pid; dead ones too.

    What is spared is left out, with all that is below it.
    """
    by_parent = {}
    for each in table().values():
        if each.pid not in sparing:
            by_parent.setdefault(each.parent, []).append(each)
    return {pid: list(_below(pid, by_parent)) for pid in pids}


def _below(pid, by_parent):
    for child in by_parent.get(pid, ()):
        yield child
        yield from _below(child.pid, by_parent)


def end(find, reap):
    """Kill what ``find()`` returns, a dict of entries by pid, until it returns nothing living.

    They are stopped before they are killed: what forks faster than it can be
    killed would otherwise always be ahead. ``reap()`` buries the dead. Returns
    what was killed, and what still lives after some patience.

    Resource trackers come last: when those that they serve are dead, they remove what these
    have left in the system, and end by themselves.
    """
    trackers = {}

    def is_tracker(pid):
        if pid not in trackers:
            trackers[pid] = _is_tracker(pid)
        return trackers[pid]

    def find_others():
        return {pid: each for pid, each in find().items() if not is_tracker(pid)}

    stopped, living = _end(find_others, reap)
    if any(trackers.values()):
        if not living:
            deadline = time.monotonic() + TRACKERS_PATIENCE
            while _living(find) and time.monotonic() < deadline:
                time.sleep(0.002)
                reap()
        more, living = _end(find, reap)
        stopped |= more
    return stopped, living


def _end(find, reap):
    stopped = {}
    deadline = time.monotonic() + PATIENCE
    while True:
        living = _living(find)
        is_late = time.monotonic() >= deadline
        new = living.keys() - stopped.keys()
        for pid in new:
            kill(pid, signal.SIGSTOP)
        stopped |= living
        if not new or is_late:
            for pid in living:
                kill(pid)
            reap()
        if is_late and living:
            # Killed a moment ago, and perhaps never before: it was this process that was late.
            time.sleep(MOMENT)
            reap()
            living = _living(find)
        if not living or is_late:
            return stopped, living
        if not new:
            time.sleep(0.002)


def _living(find):
    return {pid: each for pid, each in find().items() if not each.is_dead}


def _is_tracker(pid):
    with contextlib.suppress(OSError):
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def kill_sessions(sessions, mark=""):
    """Kill every process of these sessions, or with this mark; tells whether all are dead.

    Elsewhere than on Linux that cannot be known.
    """
    sessions = set(sessions)
    if not LINUX:
        for session in sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)

    def find():
        return {
            pid: each
            for pid, each in table().items()
            if each.session in sessions or (mark and _is_marked(pid, mark))
        }

    _, living = end(find, lambda: None)
    return LINUX and not living


def _is_marked(pid, mark):
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


class LeftBehind:
    """Processes below this one that dead workers have left behind.

    As a subreaper this process has inherited them. Those that were there at first do not
    count, nor those whose pids ``ours()`` returns.
    """

    def __init__(self, ours=set):
        self._ours = ours
        self._strangers = set(children(os.getpid())) - ours()

    def end(self, known, reap):
        """Kill all of it, but for what is ``known`` and below that; returns how many were killed.

        ``reap()`` buries the dead.
        """
        if not LINUX:
            return 0
        sparing = {*known, *self._ours(), *self._strangers}

        def find():
            below = descendants([os.getpid()], sparing=sparing)
            return {each.pid: each for each in below[os.getpid()]}

        return len(end(find, reap)[0])
