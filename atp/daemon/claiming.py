"""Claiming: when to look at the queue, for how much; and the housekeeping in between."""

from ..conf import settings
from . import abandoned, journal
from .processes import uptime
from .scanner import Scanner

CLAIMING = "claiming"
# After a look that found nothing, the next comes this late, in seconds, and ever later.
FIRST_WAIT = 0.01


class Claiming:
    """Works in the claiming thread; every call is one look at the queue, or one chore."""

    def __init__(self, thread, store, identity, pool, attempts, timers, duty):
        self._thread = thread
        self._store = store
        self._identity = identity
        self._pool = pool
        self._attempts = attempts
        self._news = attempts.news
        self._timers = timers
        self._scanner = Scanner(store)
        self._duty = duty
        # The state of affairs at which the queue was found to hold nothing that is due.
        self._empty_at = None
        self._wait, self._news_at_wait = FIRST_WAIT, None
        # What the last outlook said.
        self._due_at = None
        self._lost = self._late = self._drops = False

    def turn(self, claims):
        """Start the next call, if the thread is free; without ``claims`` only chores."""
        if self._thread.busy:
            return
        wanted = self._wanted() if claims and self._identity.leased else 0
        if wanted and self._identity.types and self._is_time():
            self._claim(wanted)
        else:
            self._housekeep()

    def _wanted(self):
        return self._pool.wanted(self._attempts.unrecorded) if self._pool.is_low() else 0

    def _is_time(self):
        """When a worker has become free, or something waits or may wait."""
        freed = self._news.take_freed()
        return freed or self._is_due() or self._news.more_waits

    def _is_due(self):
        return self._due_at is not None and uptime() >= self._due_at

    def _claim(self, wanted):
        daemon, types = self._identity.current, self._identity.types
        news, calls, free, began = self._news.count, self._news.calls, self._pool.free(), uptime()
        if self.found_nothing():
            # What has come starts at once; the next look is for what came with it.
            wanted = 1
        self._empty_at = None
        if self._is_due():
            self._due_at = None

        def claim():
            claimed = self._store.claim(daemon, types, wanted, free=free)
            # What is too late hides what is due behind it.
            missed = 0 if claimed else self._store.miss(who=self._identity.name)
            return claimed, missed

        def claimed(result):
            tasks, missed = result.value
            self._tell_missed(missed)
            # What has come into the queue meanwhile, this claim may not have seen.
            was_called = self._news.calls != calls
            self._news.more_waits = len(tasks) >= wanted or bool(missed) or was_called
            if not self._news.more_waits:
                self._empty_at = news
            if not tasks:
                if news != self._news_at_wait:
                    # However often it was nothing: where there is a limit, there will be room.
                    self._wait, self._news_at_wait = FIRST_WAIT, news
                self._timers.later("outlook", self._wait)
                self._wait = min(2 * self._wait, settings.POLL_EVERY)
            else:
                self._wait = FIRST_WAIT
                self._pool.claim_took(uptime() - began)
                self._take(tasks)

        self._thread.submit(CLAIMING, claim, claimed)

    def _take(self, tasks):
        journal.claimed(count=len(tasks))
        self._attempts.add_limited(tasks)
        self._pool.put(tasks)
        if self._attempts.stopping:
            self._attempts.hand_back_unstarted(self._attempts.stopping)

    def handed(self, task):
        """Take a Task that an enqueue has handed to this daemon, as idle as it was then."""
        has_free = self._pool.has_free()
        self._take([task])
        if not has_free and not self._attempts.stopping:
            # Others may be idle. What it has claimed itself it keeps.
            self._attempts.hand_back([self._pool.take_waiting(task.key)], "no worker was free")

    @property
    def is_claiming(self):
        """Whether a claim is on its way: what it brings is held by this daemon, wanted or not."""
        return self._thread.doing == CLAIMING

    def found_nothing(self):
        """Whether the last look found nothing due, and nothing was put back since."""
        return self._empty_at == self._news.count or not self._identity.types

    def is_idle(self):
        """Whether something would be started at once if it came now, and nothing has, so far."""
        return self.found_nothing() and self._pool.has_free() and not self._attempts.stopping

    # Chores

    def _housekeep(self):
        daemon, name = self._identity.current, self._identity.name
        types = self._identity.types
        if self._timers.due("outlook", min(settings.POLL_EVERY, settings.SWEEP_EVERY)):
            news = self._news.count
            self._thread.submit(
                "looking at the queue",
                lambda: self._store.outlook(types, daemon=daemon),
                lambda result: self._looked(result, news),
            )
        elif self._lost and self._identity.may_sweep:
            self._lost = False
            self._thread.submit("sweeping", lambda: self._sweep(daemon), self._swept)
        elif self._late:
            self._late = False
            self._thread.submit(
                "looking for what was missed", lambda: self._store.miss(who=name), self._missed
            )
        elif self._drops:
            self._drops = False
            self._thread.submit(
                "dropping what a gate drops", lambda: self._store.drop(who=name), self._dropped
            )
        elif self._timers.due("purge", settings.PURGE_EVERY):
            self._thread.submit("purging", self._store.purge, self._purged)
        elif self._identity.may_sweep and self._timers.due("scan", settings.SCAN_EVERY):
            self._thread.submit("scanning", lambda: self._scanner.scan(name), self._scanner.tell)

    def _looked(self, result, news):
        outlook = result.value
        self._lost, self._late, self._drops = outlook.lost, outlook.late, outlook.drops
        self._duty.hint(outlook.request)
        self._due_at = None if outlook.due is None else result.sent + outlook.due
        if outlook.due is None or outlook.due > 0:
            self._empty_at = news
        if outlook.due is not None and outlook.due > 0:
            self._timers.later("due", outlook.due)

    def _sweep(self, daemon):
        """Take away what lost daemons hold, when nothing of theirs runs here any more."""
        ended = abandoned.end()
        return ended, self._store.sweep(daemon=daemon)

    def _swept(self, result):
        ended, swept = result.value
        if ended:
            journal.abandoned(count=ended)
        if swept.daemons or swept.expired:
            names = ", ".join(swept.daemons) or "one with many Tasks"
            journal.daemons_lost(daemons=names, expired=swept.expired)
            self._attempts.tally.lost(swept.lost, "its daemon was lost")
            self._news.put_back()

    def _missed(self, result):
        self._tell_missed(result.value)
        if result.value:
            self._late = True

    def _dropped(self, result):
        if result.value:
            journal.dropped(count=result.value)
            self._drops = True

    def _tell_missed(self, count):
        if count:
            self._attempts.tally.missed(count)

    def _purged(self, result):
        if result.value:
            journal.purged(count=result.value)
            self._timers.now("purge")
