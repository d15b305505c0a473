"""Renewing the lease, and updating the daemon's row: its workers, its mode, whether it is idle."""

from ...commands import Mode
from ...conf import settings
from .. import journal
from ..shared import messages
from ..system.processes import uptime

RENEWING = "renewing the lease"
# If the row is locked, the daemon writes it again after this many seconds.
SAY_AGAIN = 2.0
# A renewal that has met a lock is tried again after this many seconds.
LOOK_AGAIN = 0.25
# After this many seconds of work the daemon's row no longer says that it is idle.
TELL_BUSY_AFTER = 0.1


class Renewal:
    """The renewal of the lease, when it is time and when the daemon's row has to change.

    An enqueue hands a Task over only to a daemon whose row says that it is idle, and through
    the channel that the row names.
    """

    def __init__(self, core, attempts, claiming, wakeups, orders):
        self._core = core
        self._attempts = attempts
        self._claiming = claiming
        self._wakeups = wakeups
        self._orders = orders
        # The current values of the row.
        self._row_idle, self._row_mode, self._row_channel = None, Mode.RUNNING, ""
        self._may_be_handed, self._handings, self._unheard_since = False, 0, None
        self._busy_since, self._was_locked = 0.0, False
        # Whether the counts are in the database. The thread that renews sets this.
        self._is_added = False

    def is_due(self):
        """Tell whether it is time to renew, or the row has to change."""
        timers = self._core.timers
        has_news = timers.passed("news") and self._has_news()
        return timers.due("renew", settings.RENEW_EVERY) or has_news

    def joined(self):
        """Note that the daemon has a new row, without a channel and not idle."""
        self._may_be_handed, self._unheard_since = False, None
        self._row_idle, self._row_mode, self._row_channel = None, Mode.RUNNING, ""

    def handed(self):
        """Note that an enqueue has handed over a Task, and has marked the row as not idle."""
        self._handings += 1
        self._row_idle = self._may_be_handed = False

    def may_be_handed(self):
        """Tell whether an enqueue may hand over a Task now, or has without being heard yet."""
        return self._may_be_handed

    def may_have_missed_handing(self):
        """Tell whether the daemon no longer listens to the channel that the row names.

        A Task that was handed over through it is held under this identity unnoticed. Only the
        join of a new identity finds it.
        """
        channel = self._row_channel
        return self._core.identity.current is not None and channel not in (
            "",
            self._wakeups.channel,
        )

    def locked(self, result):
        """Renew again soon, after a renewal met another session's lock.

        Counts that were added before the lock are not added again.
        """
        if result.doing == RENEWING:
            self._core.statistics.answered(self._is_added)
            self._was_locked = True
            self._core.timers.later("renew", LOOK_AGAIN)

    def _mode(self):
        """Return the mode for the row: QUIET only when no claim is on its way any more."""
        mode = self._orders.mode
        return Mode.RUNNING if mode is Mode.QUIET and self._claiming.is_claiming else mode

    def _has_news(self):
        """Tell whether the row should change: its mode, its channel, or whether it is idle.

        An enqueue notifies only if some daemon's row says idle. Each notice costs the server a
        lock, so a daemon at work withdraws its idle after TELL_BUSY_AFTER.
        """
        mode = self._mode()
        # A daemon that stops and holds nothing is gone before anybody looks.
        if mode is not self._row_mode and (mode is not Mode.STOPPING or self._attempts.any()):
            return True
        if self._claiming.is_idle():
            self._busy_since = uptime()
            channel = self._wakeups.channel
            return self._row_idle is not True or self._row_channel != channel
        return self._row_idle is True and uptime() - self._busy_since >= TELL_BUSY_AFTER

    def start(self, thread):
        """Submit a renewal to the thread."""
        core, daemon = self._core, self._core.identity.current
        workers, idle, mode = self._attempts.workers(), self._claiming.is_idle(), self._mode()
        channel, misfits = self._wakeups.channel, core.misfits.by_type()
        if self._row_channel not in ("", channel):
            return  # the channel was lost just now; the next turn will find that
        # From now on an enqueue may hand over a Task through this channel.
        row_channel_before, self._row_channel = self._row_channel, channel
        handings = self._handings
        self._may_be_handed = self._may_be_handed or idle
        core.timers.later("renew", settings.RENEW_EVERY)

        # Leave out the counts if the row was locked just now.
        counts = None if self._was_locked else core.statistics.send()

        def renewed(result):
            renewal = result.value
            core.statistics.answered(self._is_added)
            core.identity.renewed(renewal.time, result.sent, result.received)
            core.tell(messages.LeaseRenewed(core.identity.lease_until))
            self._orders.obey(renewal.request)
            self._was_locked = renewal.is_spare
            if renewal.is_spare:
                # Only the spare lease was renewed: the row is as it was.
                self._row_channel = row_channel_before
                core.timers.later("news", SAY_AGAIN)
                core.caution.met(RENEWING)
                return
            if idle and not self._row_idle:
                # Enqueues before the row said idle have sent no notice: claim now.
                core.queue.call()
            self._may_be_handed = idle or renewal.unheard
            self._check_listener(renewal.unheard)
            # A Task that was handed over meanwhile may have come before this renewal. Then the
            # row has to be written once more.
            self._row_idle = idle and handings == self._handings
            self._row_mode = mode

        def renew():
            # Add the counts before the renewal: an enqueue skips a row that is locked.
            self._is_added = counts is not None and core.store.statistics.add(daemon, counts)
            return core.store.daemons.renew(
                daemon,
                lease=settings.LEASE,
                workers=workers,
                idle=idle,
                mode=mode,
                channel=channel,
                misfits=misfits,
            )

        thread.submit(RENEWING, renew, renewed)

    def _check_listener(self, unheard):
        """Give up the identity if a Task that was handed over stays ``unheard`` for RENEW_EVERY."""
        if not unheard:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = uptime()
        elif uptime() - self._unheard_since >= settings.RENEW_EVERY:
            # The listener works, but does not see the Task.
            journal.channel_lost()
            self._core.identity.lose()
