"""Claiming: deciding when to claim Tasks, and how many."""

from ... import messages
from ...conf import settings
from .. import journal
from ..system.processes import uptime
from .unrecorded import BATCH

CLAIMING = "claiming"
# The pause after a claim that found nothing, in seconds; it doubles each time.
FIRST_WAIT = 0.01


class Claiming:
    """The user of the claiming thread. Every call in it is a claim or one of the ``chores``."""

    def __init__(self, core, thread, attempts, chores):
        self._core = core
        self._thread = thread
        self._identity = core.identity
        self._pool = core.pool
        self._queue = core.queue
        self._attempts = attempts
        self._chores = chores
        self._wait, self._put_backs_at_wait = FIRST_WAIT, None
        # When chores come before claims, and whether one has come since the last claim.
        self._chores_first_at, self._did_chore = _after_a_rest(), False

    def turn(self, claims):
        """Start the next call if the thread is free; only a chore if ``claims`` is false.

        While there is always something to claim, claims and chores that are due take turns, as
        soon as no chore was looked for during the shortest interval of a chore.
        """
        if self._thread.busy:
            return
        if uptime() >= self._chores_first_at and not self._did_chore and self._chore():
            return
        wanted = self._wanted() if claims and self._identity.leased else 0
        if wanted and self._identity.types and self._is_time():
            self._did_chore = False
            self._claim(wanted)
        else:
            self._chore()

    def _chore(self):
        """Start the next chore that is due; return whether there is one."""
        self._did_chore = self._chores.turn()
        if not self._did_chore:
            self._chores_first_at = _after_a_rest()
        return self._did_chore

    def _wanted(self):
        if not self._pool.is_low():
            return 0
        return self._pool.wanted(behind=max(0, self._core.unrecorded.pending - BATCH))

    def _is_time(self):
        """Tell whether a worker has become free, or a Task is due or may be due."""
        freed = self._queue.take_freed()
        return freed or self._queue.is_due or self._queue.more_waits

    def _claim(self, wanted):
        core, queue = self._core, self._queue
        daemon, types = self._identity.current, core.misfits.claimable(self._identity.types)
        types = core.downstreams.claimable(types)
        put_backs, calls = queue.put_backs, queue.calls
        free, began = self._pool.free(), uptime()
        if self.found_nothing():
            # Claim one Task, which starts at once; the next claim takes those that came with it.
            wanted = 1
        queue.forget_empty()
        if queue.is_due:
            queue.due_at = None
        careful = core.caution.is_advised

        def claim():
            claimed = core.store.claims.claim(
                daemon, types, wanted, free=free, careful=careful, memory=core.memory
            )
            # Tasks past their start_before hide the due ones behind them.
            missed = 0 if claimed else core.store.claims.miss(who=self._identity.name)
            return claimed, missed

        def claimed(result):
            tasks, missed = result.value
            if missed:
                core.counters.missed(missed)
            # This claim may not have seen the Tasks that came into the queue meanwhile.
            was_called = queue.calls != calls
            queue.more_waits = len(tasks) >= wanted or bool(missed) or was_called
            if not queue.more_waits:
                queue.found_empty(put_backs)
            if not tasks:
                self._wait_longer(put_backs)
            else:
                self._wait = FIRST_WAIT
                self._pool.claim_took(uptime() - began)
                self._take(tasks)

        self._thread.submit(CLAIMING, claim, claimed)

    def _wait_longer(self, put_backs):
        if put_backs != self._put_backs_at_wait:
            # Start with a short wait again: a place under a limit may be free soon.
            self._wait, self._put_backs_at_wait = FIRST_WAIT, put_backs
        self._core.timers.later("outlook", self._wait)
        self._wait = min(2 * self._wait, settings.POLL_EVERY)

    def locked(self, result):
        """Claim again, carefully, after a claim met another session's lock and took nothing."""
        if result.doing == CLAIMING:
            self._queue.more_waits = True

    def _take(self, tasks):
        journal.claimed(count=len(tasks))
        self._attempts.limited.add(tasks)
        self._pool.put(tasks)
        for name, gone in self._core.downstreams.too_early(self._pool):
            self._attempts.hand_back(gone, messages.downstream_takes_no_more(name))
        if self._attempts.stopping:
            self._attempts.hand_back_unstarted(self._attempts.stopping)

    def handed(self, task):
        """Take a Task that an enqueue has handed to this daemon, which was idle then."""
        has_free = self._pool.has_free()
        self._take([task])
        if not has_free and not self._attempts.stopping:
            # Hand this Task back, since other daemons may be idle; keep the claimed ones. It may
            # have been handed back already, as the state of its downstream forbids it.
            waiting = self._pool.take_waiting(task.key)
            if waiting is not None:
                self._attempts.hand_back([waiting], messages.no_worker_free())

    @property
    def is_claiming(self):
        """Whether a claim is on its way: this daemon will hold its Tasks, wanted or not."""
        return self._thread.doing == CLAIMING

    def found_nothing(self):
        """Tell whether the last look found no due Task, and none was put back since."""
        return self._queue.is_empty or not self._identity.types

    def is_idle(self):
        """Tell whether a worker would start a new Task at once."""
        return self.found_nothing() and self._pool.has_free() and not self._attempts.stopping


def _after_a_rest():
    """Return when chores are to be looked for again, even if there is always something to claim."""
    return uptime() + min(settings.POLL_EVERY, settings.SWEEP_EVERY)
