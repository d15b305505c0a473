"""Finding and killing the descendants of a daemon's processes. Linux only."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from .processes import LINUX, kill

# The environment variable with the daemon's mark, which programs that a handler starts inherit.
MARK = "ATP_DAEMON"
# The time limit for killing processes, in seconds: one in an uninterruptible sleep dies only
# when it wakes.
PATIENCE = 1.0
# The time that a resource tracker gets to remove what its clients have left, in seconds.
TRACKERS_PATIENCE = 1.0
# The command line of a resource tracker, of multiprocessing or loky, has this text.
_TRACKER = b".resource_tracker import main"
# The time that a process gets to die if it is killed at the very end, in seconds.
MOMENT = 0.05


class Entry(NamedTuple):
    """A process in the system's table; ``name`` is what ps shows."""

    pid: int
    parent: int
    session: int
    name: str
    is_dead: bool


def table():
    """Return an Entry for every process, by pid; also for dead ones that are not reaped."""
    found = {}
    with contextlib.suppress(OSError):  # no /proc, or no descriptor left to look at it
        for number in os.listdir("/proc"):
            if number.isdigit() and (text := _read(f"/proc/{number}/stat")):
                # The name, in parentheses, may have any characters; the rest is regular.
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
    """Return the pids of the living children of a process."""
    return [each.pid for each in table().values() if each.parent == pid and not each.is_dead]


def descendants(pids, *, sparing=()):
    """Return, by each of these pids, the entries of its descendants, dead ones included.

    Processes in ``sparing`` are left out, with their descendants.
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
    """Kill the processes of ``find()``, a dict of entries by pid, until none of them lives.

    All are stopped before they are killed; otherwise a process that forks fast would always be
    ahead. ``reap()`` reaps dead children. Return two dicts of entries: the killed ones, and
    those that still live after PATIENCE.

    Resource trackers are killed last. When their clients are dead, they remove what these have
    left in the system, and end by themselves.
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
            # Give them a moment: if this process was late, this was the first kill.
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
    """Kill every process of these sessions or with this mark; return whether all are dead.

    On other systems than Linux, kill the process groups of these pids and return False.
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
    """The processes that dead workers have left behind, and that this subreaper has inherited.

    Children that existed when this was made do not count, nor do the pids of ``ours()``.
    """

    def __init__(self, ours=set):
        self._ours = ours
        self._strangers = set(children(os.getpid())) - ours()

    def end(self, known, reap):
        """Kill the left processes, and return their number.

        Processes whose pid is ``known`` are spared, with their descendants. ``reap()`` reaps
        dead children.
        """
        if not LINUX:
            return 0
        sparing = {*known, *self._ours(), *self._strangers}

        def find():
            below = descendants([os.getpid()], sparing=sparing)
            return {each.pid: each for each in below[os.getpid()]}

        return len(end(find, reap)[0])
