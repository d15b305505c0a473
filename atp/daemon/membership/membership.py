"""Membership: joining the queue, and joining it again after every failure of the database."""

from ...conf import settings
from ...exceptions import LeaseLost
from .. import journal
from ..shared import messages
from ..system.database import is_outage
from ..system.processes import uptime

# The pause before the next try after a failure, in seconds; it doubles, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# Earlier identities may still hold Tasks that another session has locked. The daemon tries to
# end them this often, in seconds.
SETTLE_EVERY = 0.25
JOINING = "joining"
# If a kind of call has failed, and is not tried again for this many seconds while other calls
# succeed, its failure is forgotten.
FORGET_AFTER = 1.5
# A failure that persists is logged again after this many seconds.
SAY_AGAIN = 60.0


class Membership:
    """The membership of the dispatcher: it ends when a call fails, and a join begins a new one.

    Joins run in the last of the ``threads``.
    """

    def __init__(self, core, threads, orders):
        self._core = core
        self._threads = threads
        self._thread = threads[-1]
        self._identity = core.identity
        self._unrecorded = core.unrecorded
        self._timers = core.timers
        self._tell = core.tell
        self._orders = orders
        # The time of the failure of each kind of call that has not succeeded since.
        self._failing = {}
        self._failed_at = 0.0
        # The time when the failure of each kind of call was last logged.
        self._said_at = {}
        self._pause = FIRST_PAUSE

    def answered(self, result):
        """Note that a call succeeded; the trouble is over when no kind of call is failing."""
        self._failing.pop(result.doing, None)
        # A call that was not tried again since then may never be.
        limit = uptime() - FORGET_AFTER
        self._failing = {doing: at for doing, at in self._failing.items() if at > limit}
        if not self._failing and self._pause > FIRST_PAUSE:
            self._pause = FIRST_PAUSE
            journal.database_back(seconds=uptime() - self._failed_at)

    def locked(self, result):
        """Try to join again soon, if another session's lock kept the daemon from joining."""
        if result.doing == JOINING:
            self._timers.later("rejoin", FIRST_PAUSE)

    def failed(self, result):
        """Note that a call failed, reconnect, and give up the current identity."""
        if isinstance(result.error, LeaseLost):
            journal.lease_lost(why=result.error)
        else:
            self._note_failure(result)
        for thread in self._threads:
            thread.reconnect()
        self._identity.lose()

    def _note_failure(self, result):
        if not self._failing:
            self._failed_at = uptime()
        said = self._said_at.get(result.doing, 0.0)
        if result.doing not in self._failing or uptime() - said >= SAY_AGAIN:
            self._said_at[result.doing] = uptime()
            # An error that is not the database's fault is logged with its traceback.
            trace = None if is_outage(result.error) else result.error
            journal.database_failed(doing=result.doing, error=_words(result.error), exc_info=trace)
        self._failing[result.doing] = uptime()
        self._timers.later("rejoin", self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def rejoin(self, then):
        """Take a new identity, if it is time to try; call ``then(reconciled)`` afterwards."""
        if not self._timers.passed("rejoin"):
            return
        self._tell(messages.Joining(self._identity.propose()))
        holding = self._holding()

        def joined(result):
            answer, unsettled = result.value
            self._announce(answer)
            self._identity.joined(answer, unsettled, result.sent, result.received)
            self._tell_identities()
            self._tell(messages.LeaseRenewed(self._identity.lease_until))
            self._timers.later("renew", settings.RENEW_EVERY)
            self._orders.joined(answer.request)
            then(answer)

        request = self._orders.request
        self._thread.submit(
            JOINING, lambda: self._identity.join(self._core.store, holding, request), joined
        )

    def settle(self, then):
        """Try again to end earlier identities; call ``then(reconciled)`` afterwards."""
        if not self._identity.previous or not self._timers.due("settle", SETTLE_EVERY):
            return
        holding, identity = self._holding(), self._identity
        current, previous = identity.current, tuple(identity.previous)

        def settled(result):
            if identity.current != current:
                return  # the identity was lost meanwhile; the next one settles all
            answer, unsettled = result.value
            then(answer)
            identity.settled(answer, unsettled)
            self._tell_identities()

        self._thread.submit(
            "ending earlier identities",
            lambda: identity.settle(self._core.store, current, previous, holding),
            settled,
        )

    def _holding(self):
        return sorted(
            {holding.key for holding in self._core.pool.holdings()} | self._unrecorded.keys()
        )

    def _tell_identities(self):
        identities = (self._identity.current, *self._identity.previous)
        self._tell(messages.Joined(identities))

    def _announce(self, answer):
        if self._identity.previous:
            journal.rejoined(
                daemon=self._identity.candidate, kept=len(answer.kept), expired=len(answer.lost)
            )
        else:
            journal.joined(daemon=self._identity.candidate)


def _words(error):
    return " ".join(str(error).split()) or type(error).__name__
