"""Membership: joining the queue, and joining it again after every failure of the database."""

from ..conf import settings
from ..exceptions import LeaseLost
from . import journal
from .database import is_outage
from .processes import uptime
from .recording import RECORDING

# After a failure the next try waits this long, in seconds, and ever longer.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
# What failed and is not tried again within this, in seconds, while other calls go
# through, is no trouble any more.
FORGET_AFTER = 3.0


class Membership:
    """Ends the identity when a call fails, and takes a new one when that is possible.

    It joins in the last of the ``threads``.
    """

    def __init__(self, threads, store, identity, pool, ledger, timers, tell, duty):
        self._threads = threads
        self._thread = threads[-1]
        self._store = store
        self._identity = identity
        self._pool = pool
        self._ledger = ledger
        self._timers = timers
        self._tell = tell
        self._duty = duty
        # What has failed and has not gone through since, and when it did last.
        self._failing = {}
        self._failed_at = 0.0
        self._pause = FIRST_PAUSE

    def answered(self, result):
        """A call went through; when all that failed have, the trouble is over."""
        self._failing.pop(result.doing, None)
        # What was not tried again since then may never be.
        limit = uptime() - FORGET_AFTER
        self._failing = {doing: at for doing, at in self._failing.items() if at > limit}
        if not self._failing and self._pause > FIRST_PAUSE:
            self._pause = FIRST_PAUSE
            journal.database_back(seconds=uptime() - self._failed_at)

    def failed(self, result):
        """A call failed: its identity is not to be used any more."""
        if isinstance(result.error, LeaseLost):
            journal.lease_lost(why=result.error)
        else:
            self._note_failure(result)
        if result.doing == RECORDING:
            # It may be in the database or not. Joining will tell. What took too long
            # is written in smaller pieces.
            self._ledger.give_back()
            self._ledger.shrink()
        for thread in self._threads:
            thread.reconnect()
        self._identity.lose()

    def _note_failure(self, result):
        if not self._failing:
            self._failed_at = uptime()
        if result.doing not in self._failing:
            # What is not the database's fault is told with its traceback.
            trace = None if is_outage(result.error) else result.error
            journal.database_failed(doing=result.doing, error=_words(result.error), exc_info=trace)
        self._failing[result.doing] = uptime()
        self._timers.later("rejoin", self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def rejoin(self, then):
        """Take a new identity, if it is time to try; ``then(kept, lost)`` is told what it holds."""
        if not self._timers.passed("rejoin"):
            return
        self._tell("identity", self._identity.propose())
        holding = {holding.key for holding in self._pool.holdings()} | self._ledger.keys()

        def joined(result):
            answer, lost = result.value
            self._announce(answer, lost)
            self._identity.joined(answer, result.sent, result.received)
            self._tell("joined", self._identity.current)
            self._tell("lease", self._identity.lease_until)
            self._timers.later("renew", settings.RENEW_EVERY)
            self._duty.joined(answer.request)
            then(answer.kept, lost)

        request = self._duty.request
        self._thread.submit(
            "joining", lambda: self._identity.join(self._store, sorted(holding), request), joined
        )

    def _announce(self, answer, lost):
        if self._identity.previous:
            journal.rejoined(
                daemon=self._identity.candidate, kept=len(answer.kept), expired=len(lost)
            )
        else:
            journal.joined(daemon=self._identity.candidate)


def _words(error):
    return " ".join(str(error).split()) or type(error).__name__
