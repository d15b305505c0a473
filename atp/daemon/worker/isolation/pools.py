"""Process pools that libraries keep, and the helper processes of these pools.

To kill the processes of a pool is not enough: its library would notice that in the next
attempt, and make it fail. So each library is asked to close its pool. If it has no public
function for that, private names are used with care. If those have changed, the processes are
killed like any others.
"""

import contextlib
import sys
import threading

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


def helpers():
    """Return the pids of helper processes, which belong to no task and serve the next one too.

    They are the fork server, and the resource trackers, which remove the resources that their
    clients leave in the system.
    """
    server = getattr(_module(_FORK_SERVER), "_forkserver", None)
    trackers = (getattr(_module(name), "_resource_tracker", None) for name in _TRACKERS)
    pids = {getattr(tracker, "_pid", None) for tracker in trackers}
    return (pids | {getattr(server, "_forkserver_pid", None)}) - {None}


def settle():
    """Close the pools that an attempt has left; return the pids of the pools that may stay.

    An idle pool that somebody holds, for example in a module, may stay: it is no part of an
    attempt, and closing it would break it for good. A pool that its library makes anew when
    needed is closed.
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
        # The terminate() of joblib also removes the folders that it shares with its processes.
        close = getattr(executor, "terminate", executor.shutdown)
        _within(PATIENCE, lambda close=close: close(kill_workers=True))


def _executors():
    """Yield (pids, is idle, function that closes it) of each executor of concurrent.futures."""
    for manager in list(getattr(_module(_EXECUTORS), "_threads_wakeups", ())):
        with contextlib.suppress(AttributeError, TypeError):
            executor = manager.executor_reference()
            pids = {process.pid for process in list(manager.processes.values())}
            is_idle = not manager.pending_work_items and executor is not None
            yield pids, is_idle and not executor._broken, lambda each=manager: _end(each)


def _end(manager):
    """Kill the processes of an executor, and wait until its manager thread has ended."""
    for process in list(manager.processes.values()):
        process.kill()
    manager.join(PATIENCE)


def _pools():
    """Yield (pids, is idle, function that closes it) of each pool of multiprocessing."""
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
    """Call a function of a library in a thread, and wait for it up to ``seconds``."""

    def guarded():
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
