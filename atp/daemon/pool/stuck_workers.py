"""Stuck workers: workers that get tasks and start none.

A thread that a handler has left behind may hold the GIL, or somebody has stopped the process.
Between two attempts no time-out runs. The unstarted tasks of such a worker go to others, and
no attempt counts as lost. The worker gets no more tasks; if it does not recover, it is
replaced.
"""

import time

from ... import messages
from ..shared.running_page import NOTHING

# The times, in seconds, after which its unstarted tasks are taken back, and after which it is
# killed. The clock stands still while the host is suspended.
TAKE_BACK_AFTER, KILL_AFTER = 1.0, 10.0
# A worker that is not ready within this many seconds is replaced: a lock may have been held when
# it was forked.
READY_WITHIN = 600.0
_STARTING = "starting"


class StuckWorkers:
    """The watcher of a pool's workers.

    ``kill(link, key, why)`` asks the supervisor to kill a worker if it runs this attempt.
    """

    def __init__(self, pool, page, kill):
        self._pool = pool
        self._page = page
        self._kill = kill
        # By pid: the serial number of the task that a worker should start next, and since when.
        self._since = {}

    def turn(self):
        """Look at every worker that has tasks, or is known to be stuck."""
        now = time.monotonic()
        seen = {}
        for link in self._pool.links.values():
            if link.is_starting:
                before = self._since.get(link.pid, (_STARTING, now))
                seen[link.pid] = before
                if now - before[1] >= READY_WITHIN:
                    self._kill(link, NOTHING, messages.worker_stuck(is_ready=False))
                    seen[link.pid] = _STARTING, now
                continue
            if not link.is_stuck and (not link.assigned or link.ring.has_news):
                continue
            running = self._page.read(link.slot)
            if running is not None and (
                running.key in link.assigned or running.key in link.revoked
            ):
                link.is_stuck = False
                continue
            # An attempt in the page that is not assigned has ended: the worker has not cleared it.
            key = NOTHING if running is None else running.key
            serial = None if link.is_stuck else link.first.serial
            before = self._since.get(link.pid)
            seen[link.pid] = before if before and before[0] == serial else (serial, now)
            if self._act(link, key, now - seen[link.pid][1]):
                seen[link.pid] = serial, now
        self._since = seen

    def _act(self, link, key, waited):
        """Take tasks back or kill the worker, by the seconds ``waited``; tell whether it killed."""
        if link.is_stuck and waited >= KILL_AFTER - TAKE_BACK_AFTER:
            self._kill(link, key, messages.worker_stuck())
            return True
        if not link.is_stuck and waited >= TAKE_BACK_AFTER:
            # A task whose token the worker has taken stays with it.
            link.is_stuck = True
            self._pool.put_back(self._pool.unstarted(link))
        return False
