"""The processes that attempts have started: finding and killing them, and what memory they use."""

import contextlib
import os
import signal
import time
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from pathlib import Path
from typing import NamedTuple

from .. import messages
from . import processes
from .processes import LINUX, kill, uptime
from .shared_memory import Running

# Processes that a dead daemon of this host has left running. Linux only.
#
# Workers die with their supervisor, and the dispatcher kills the processes that they have
# started. If supervisor and dispatcher are killed together, only another daemon can kill those
# processes, before it takes the dead daemon's Tasks away (G3).

# The process name of workers and of their forks. Programs that they start have other names.
_WORKER = "atpd-worker"


def mark(name: str) -> str:
    """Return the mark for programs below this process, which is their supervisor."""
    return f"{name}/{_namespace()}/{os.getpid()}/{_start(os.getpid())}"


def end_abandoned() -> int:
    """Kill the processes of dead workers whose supervisor is dead too; return their number.

    Processes of other users are left alone.
    """
    if not processes.LINUX:
        return 0
    killed, _ = end(_found, lambda: None)
    return len(killed)


def _found() -> "dict[int, Entry]":
    table_ = table()

    def is_alive(pid: int) -> bool:
        return pid in table_ and not table_[pid].is_dead

    def is_orphan(each: Entry) -> bool:
        if each.name.startswith(_WORKER):
            return not is_alive(each.session)
        marked = _marked(each.pid)
        return marked is not None and not (is_alive(marked[0]) and _start(marked[0]) == marked[1])

    return {
        pid: each
        for pid, each in table_.items()
        if not each.is_dead and _is_ours(pid) and is_orphan(each)
    }


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _marked(pid: int) -> tuple[int, str] | None:
    """Return the pid and the start of the supervisor in a program's mark; None without a mark.

    A pid says something in its own namespace only: a mark of another container counts as none.
    """
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(MARK.encode() + b"="):
                _, namespace, supervisor, start = entry.decode().rsplit("/", 3)
                return (int(supervisor), start) if namespace == _namespace() else None
    return None


def _namespace() -> str:
    """Return the name of the namespace of this process's pids; "" if it cannot be found out."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Return the start of a process in the kernel's ticks, as text; "" if there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


# Finding and killing the descendants of a daemon's processes. Linux only.

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


def table() -> dict[int, Entry]:
    """Return an Entry for every process, by pid; also for dead ones that are not reaped."""
    found: dict[int, Entry] = {}
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


def _read(path: str) -> bytes:
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


def children(pid: int) -> list[int]:
    """Return the pids of the living children of a process."""
    return [each.pid for each in table().values() if each.parent == pid and not each.is_dead]


def descendants(
    pids: Iterable[int], *, sparing: Container[int | None] = ()
) -> dict[int, list[Entry]]:
    """Return, by each of these pids, the entries of its descendants, dead ones included.

    Processes in ``sparing`` are left out, with their descendants.
    """
    by_parent: dict[int, list[Entry]] = {}
    for each in table().values():
        if each.pid not in sparing:
            by_parent.setdefault(each.parent, []).append(each)
    return {pid: list(_below(pid, by_parent)) for pid in pids}


def _below(pid: int, by_parent: Mapping[int, Sequence[Entry]]) -> Iterator[Entry]:
    for child in by_parent.get(pid, ()):
        yield child
        yield from _below(child.pid, by_parent)


def end(
    find: Callable[[], dict[int, Entry]], reap: Callable[[], None]
) -> tuple[dict[int, Entry], dict[int, Entry]]:
    """Kill the processes of ``find()``, a dict of entries by pid, until none of them lives.

    All are stopped before they are killed; otherwise a process that forks fast would always be
    ahead. ``reap()`` reaps dead children. Return two dicts of entries: the killed ones, and
    those that still live after PATIENCE.

    Resource trackers are killed last. When their clients are dead, they remove what these have
    left in the system, and end by themselves.
    """
    trackers: dict[int, bool] = {}

    def is_tracker(pid: int) -> bool:
        if pid not in trackers:
            trackers[pid] = _is_tracker(pid)
        return trackers[pid]

    def find_others() -> dict[int, Entry]:
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


def _end(
    find: Callable[[], dict[int, Entry]], reap: Callable[[], None]
) -> tuple[dict[int, Entry], dict[int, Entry]]:
    stopped: dict[int, Entry] = {}
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


def _living(find: Callable[[], dict[int, Entry]]) -> dict[int, Entry]:
    return {pid: each for pid, each in find().items() if not each.is_dead}


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def kill_sessions(sessions: Iterable[int], mark: str = "") -> bool:
    """Kill every process of these sessions or with this mark; return whether all are dead.

    On other systems than Linux, kill the process groups of these pids and return False.
    """
    sessions = set(sessions)
    if not LINUX:
        for session in sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)

    def find() -> dict[int, Entry]:
        return {
            pid: each
            for pid, each in table().items()
            if each.session in sessions or (mark and _is_marked(pid, mark))
        }

    _, living = end(find, lambda: None)
    return LINUX and not living


def _is_marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


class LeftBehind:
    """The processes that dead workers have left behind, and that this subreaper has inherited.

    Children that existed when this was made do not count, nor do the pids of ``ours()``.
    """

    def __init__(self, ours: Callable[[], set[int]] = set) -> None:
        self._ours = ours
        self._strangers = set(children(os.getpid())) - ours()

    def end(self, known: Iterable[int | None], reap: Callable[[], None]) -> Set[int]:
        """Kill the left processes, and return their pids.

        Processes whose pid is ``known`` are spared, with their descendants. ``reap()`` reaps
        dead children.
        """
        if not LINUX:
            return frozenset()
        sparing = {*known, *self._ours(), *self._strangers}

        def find() -> dict[int, Entry]:
            below = descendants([os.getpid()], sparing=sparing)
            return {each.pid: each for each in below[os.getpid()]}

        return end(find, reap)[0].keys()


# The memory that attempts use, compared with the limits of their Types.
#
# Anonymous and shared memory of a worker and all its descendants counts, resident or swapped out,
# beyond what the worker had before the attempt. Mapped pages of files do not count, since the
# kernel can drop them. Memory that processes share, for example after a fork, counts once.

# An attempt with a limit is looked at this often, in seconds. It may exceed its limit by the
# memory that it takes between two looks.
LOOK_EVERY = 0.05
# A search for descendants reads the whole table of processes. It is done this often, in
# seconds, and never takes more than a twentieth of the time.
DESCENDANTS_EVERY = 0.25
_SELDOM = 20

_OWN = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_SHARES = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


def in_use(pid: int) -> int:
    """Return the memory of a process, in bytes, shared memory in full; 0 if unknown or gone."""
    try:
        return _sum(f"/proc/{pid}/status", _OWN)
    except OSError:
        return 0


def share(pid: int) -> int:
    """Return the memory of a process, in bytes, with only its share of shared memory."""
    try:
        return _sum(f"/proc/{pid}/smaps_rollup", _SHARES) or in_use(pid)
    except OSError:  # this process may not read it, or this kernel does not have it
        return in_use(pid)


def _sum(path: str, names: tuple[bytes, ...]) -> int:
    """Add up the lines that begin with these names; they are in KiB."""
    lines = Path(path).read_bytes().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


class MemoryWatch:
    """The supervisor's watch on the workers whose attempts have a memory limit."""

    def __init__(self) -> None:
        self._descendants: dict[int, list[int]] = {}
        self._next_look = 0.0

    def excesses(self, running: Mapping[int, Running]) -> Iterator[tuple[int, str]]:
        """Yield the pid of each worker whose attempt is over its limit, and the reason in words.

        ``running`` has the attempts with a limit, by the worker's pid.
        """
        if not running:
            return
        self._find_descendants(running)
        for pid, attempt in running.items():
            others = self._descendants.get(pid, ())
            family = [pid, *others]
            # in_use() is cheap and gives an upper bound.
            taken = sum(map(in_use, family)) - attempt.before
            if taken > attempt.memory and others:
                taken = sum(map(share, family)) - attempt.before
            if taken > attempt.memory:
                yield pid, messages.too_much_memory(taken, len(others), attempt.memory)

    def _find_descendants(self, pids: Collection[int]) -> None:
        now = uptime()
        if now < self._next_look:
            return
        began = time.monotonic()
        below = descendants(pids)
        self._descendants = {pid: [each.pid for each in below[pid]] for pid in pids}
        self._next_look = now + max(DESCENDANTS_EVERY, _SELDOM * (time.monotonic() - began))
