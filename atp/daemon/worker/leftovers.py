"""Processes and process pools that a handler leaves behind."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from ... import messages
from .. import descendants, processes

# Leftovers: processes that a handler has started and left running. They end with its attempt.


class Leftovers:
    """The descendants of this process, except those that ran when this object was made."""

    def __init__(self) -> None:
        self._kept: frozenset[int] = frozenset()
        self.keep()

    def keep(self) -> None:
        """Remember the processes that run now: end() does not kill them."""
        self._kept = frozenset(self._found()) if has_children() else frozenset()

    def end(self) -> str:
        """Kill the processes that an attempt has left; return a message, "" if there were none.

        Raises Unkillable if some of them could not be killed.
        """
        spared = settle() | helpers()
        return self._end(spared)

    def _end(self, spared: Container[int]) -> str:
        self._reap()
        killed, living = descendants.end(lambda: self._without(spared), self._reap)
        if living:
            raise Unkillable(_message(living, ended=False))
        return _message(killed, ended=True) if killed else ""

    def _found(self) -> dict[int, descendants.Entry]:
        own = os.getpid()
        # The descendants of a kept process are spared too.
        return {each.pid: each for each in descendants.descendants([own], sparing=self._kept)[own]}

    def _without(self, spared: Container[int]) -> dict[int, descendants.Entry]:
        return {pid: each for pid, each in self._found().items() if pid not in spared}

    def _reap(self) -> None:
        """Reap dead children, except helpers, whose exit status a library may still want."""
        helpers_ = helpers()
        for each in self._found().values():
            if each.is_dead and each.parent == os.getpid() and each.pid not in helpers_:
                # A thread of a library may have reaped it since.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each.pid, os.WNOHANG)


class Unkillable(Exception):
    """Some processes that an attempt has left behind could not be killed."""


def has_children() -> bool:
    """Tell, with one system call, whether this process has any children, dead ones included."""
    if not processes.LINUX:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _message(entries: Mapping[int, descendants.Entry], *, ended: bool) -> str:
    names = sorted({each.name for each in entries.values()})
    return messages.processes_left_behind(names, len(entries), ended=ended)


# Process pools that libraries keep, and the helper processes of these pools.
#
# To kill the processes of a pool is not enough: its library would notice that in the next
# attempt, and make it fail. So each library is asked to close its pool. If it has no public
# function for that, private names are used with care. If those have changed, the processes are
# killed like any others.

# Each of these modules has one executor per process, which the next user makes anew.
_REUSABLE = (
    "joblib.externals.loky.reusable_executor",
    "loky.reusable_executor",
)
_EXECUTORS = "concurrent.futures.process"
_TRACKERS = (
    "multiprocessing.resource_tracker",
    "joblib.externals.loky.backend.resource_tracker",
    "loky.backend.resource_tracker",
)
_FORK_SERVER = "multiprocessing.forkserver"
# The time that a library gets to close a pool, in seconds.
PATIENCE = 5.0

# The pids of a pool, whether it is idle, and a function that closes it.
_Pool: TypeAlias = tuple[set[int], bool, Callable[..., object]]


def helpers() -> set[int]:
    """Return the pids of helper processes, which belong to no task and serve the next one too.

    They are the fork server, and the resource trackers, which remove the resources that their
    clients leave in the system.
    """
    server = getattr(_module(_FORK_SERVER), "_forkserver", None)
    trackers = (getattr(_module(name), "_resource_tracker", None) for name in _TRACKERS)
    pids = {getattr(tracker, "_pid", None) for tracker in trackers}
    return (pids | {getattr(server, "_forkserver_pid", None)}) - {None}  # type: ignore[return-value]


def settle() -> set[int]:
    """Close the pools that an attempt has left; return the pids of the pools that may stay.

    An idle pool that somebody holds, for example in a module, may stay: it is no part of an
    attempt, and closing it would break it for good. A pool that its library makes anew when
    needed is closed.
    """
    _close_reusable()
    staying: set[int] = set()
    for pids, is_idle, close in (*_executors(), *_pools()):
        if is_idle:
            staying |= pids
        else:
            close()
    return staying


def _close_reusable() -> None:
    for name in _REUSABLE:
        executor = getattr(_module(name), "_executor", None)
        if executor is None or getattr(getattr(executor, "_flags", None), "shutdown", False):
            continue
        # The terminate() of joblib also removes the folders that it shares with its processes.
        close = getattr(executor, "terminate", executor.shutdown)
        _within(PATIENCE, lambda close=close: close(kill_workers=True))


def _executors() -> Iterator[_Pool]:
    """Yield (pids, is idle, function that closes it) of each executor of concurrent.futures."""
    for manager in list(getattr(_module(_EXECUTORS), "_threads_wakeups", ())):
        with contextlib.suppress(AttributeError, TypeError):
            executor = manager.executor_reference()
            pids = {process.pid for process in list(manager.processes.values())}
            is_idle = not manager.pending_work_items and executor is not None
            yield pids, is_idle and not executor._broken, lambda each=manager: _end(each)


def _end(manager: Any) -> None:
    """Kill the processes of an executor, and wait until its manager thread has ended."""
    for process in list(manager.processes.values()):
        process.kill()
    manager.join(PATIENCE)


def _pools() -> Iterator[_Pool]:
    """Yield (pids, is idle, function that closes it) of each pool of multiprocessing."""
    registry = getattr(_module("multiprocessing.util"), "_finalizer_registry", {})
    kind = getattr(_module("multiprocessing.pool"), "Pool", None)
    threads: Any = getattr(_module("multiprocessing.pool"), "ThreadPool", None)
    if kind is None:
        return
    for each in list(registry.values()):
        with contextlib.suppress(AttributeError, TypeError):
            pool = each._weakref and each._weakref()
            if isinstance(pool, kind) and not isinstance(pool, threads):
                pids = {process.pid for process in pool._pool}
                yield pids, not pool._cache, lambda pool=pool: _within(PATIENCE, pool.terminate)


def _module(name: str) -> ModuleType | None:
    return sys.modules.get(name)


def _within(seconds: float, call: Callable[..., object]) -> None:
    """Call a function of a library in a thread, and wait for it up to ``seconds``."""

    def guarded() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
