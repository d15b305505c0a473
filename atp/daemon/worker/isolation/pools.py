"""Pools of processes that libraries keep for themselves, and what serves them.

To kill the processes of a pool is not enough: its library would notice a moment later, in
the next attempt, and fail that. So each library is told, in its own words. What it has no
public words for is asked of its modules with care: where these have changed, the processes
are killed as any others.
"""

import contextlib
import sys
import threading

# Of each of these there is one for a process, which the next user of it makes anew.
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
# A library is waited for so long, in seconds.
PATIENCE = 5.0


def helpers():
    """Return the pids of helpers, which keep no part of a task and serve whatever runs next.

    They are the resource trackers, which remove what their clients leave in the system, and
    the fork server.
    """
    server = getattr(_module(_FORK_SERVER), "_forkserver", None)
    trackers = (getattr(_module(name), "_resource_tracker", None) for name in _TRACKERS)
    pids = {getattr(tracker, "_pid", None) for tracker in trackers}
    return (pids | {getattr(server, "_forkserver_pid", None)}) - {None}


def settle():
    """Close the pools that an attempt has left; returns the pids of those that may stay.

    A pool at the level of a module that has nothing to do is no part of an attempt, and
    would be broken for good. What a library makes anew when it is needed is closed.
    """
    _close_reusable()
    staying = set()
    for pids, is_idle, close in (*_executors(), *_pools()):
        if is_idle:
            staying |= pids
        else:
            close()
    return staying


def _close_reusable():
    for name in _REUSABLE:
        executor = getattr(_module(name), "_executor", None)
        if executor is None or getattr(getattr(executor, "_flags", None), "shutdown", False):
            continue
        # That of joblib also removes the folders that it shares with its processes.
        close = getattr(executor, "terminate", executor.shutdown)
        _within(PATIENCE, lambda close=close: close(kill_workers=True))


def _executors():
    """Yield the executors of concurrent.futures that somebody holds."""
    for manager in list(getattr(_module(_EXECUTORS), "_threads_wakeups", ())):
        with contextlib.suppress(AttributeError, TypeError):
            executor = manager.executor_reference()
            pids = {process.pid for process in list(manager.processes.values())}
            is_idle = not manager.pending_work_items and executor is not None
            yield pids, is_idle and not executor._broken, lambda each=manager: _end(each)


def _end(manager):
    """End the processes of an executor, and wait until its own thread knows that."""
    for process in list(manager.processes.values()):
        process.kill()
    manager.join(PATIENCE)


def _pools():
    """Yield the pools of multiprocessing that somebody holds."""
    registry = getattr(_module("multiprocessing.util"), "_finalizer_registry", {})
    kind = getattr(_module("multiprocessing.pool"), "Pool", None)
    threads = getattr(_module("multiprocessing.pool"), "ThreadPool", None)
    if kind is None:
        return
    for each in list(registry.values()):
        with contextlib.suppress(AttributeError, TypeError):
            pool = each._weakref and each._weakref()
            if isinstance(pool, kind) and not isinstance(pool, threads):
                pids = {process.pid for process in pool._pool}
                yield pids, not pool._cache, lambda pool=pool: _within(PATIENCE, pool.terminate)


def _module(name):
    return sys.modules.get(name)


def _within(seconds, call):
    """Call something of a library, which may wait for what never comes; not for longer."""

    def guarded():
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
