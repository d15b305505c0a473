"""Renewing the lease; and what the daemon's row says of the daemon: its workers, idle, mode."""

from ...conf import settings
from ...words.orders import Mode
from .. import journal
from ..shared import messages
from ..system.processes import uptime

RENEWING = "renewing the lease"
# If the row is locked, it is written again this late, in seconds.
SAY_AGAIN = 2.0
# A renewal that has met a lock is tried again this late, in seconds.
LOOK_AGAIN = 0.25
# A daemon that has been at work for so long, in seconds, is not called idle any more.
TELL_BUSY_AFTER = 0.1


class Renewal:
    """Renews the lease when it is time, and when the row is to say something else.

    An enqueue hands a Task only to a daemon whose row says that it is idle, through the
    channel that stands in the row.
    """

    def __init__(self, core, attempts, claiming, wakeups, orders):
        self._core = core
        self._attempts = attempts
        self._claiming = claiming
        self._wakeups = wakeups
        self._orders = orders
        # The row says this.
        self._row_idle, self._row_mode, self._row_channel = None, Mode.RUNNING, ""
        self._may_be_handed, self._handings, self._unheard_since = False, 0, None
        self._busy_since, self._was_locked = 0.0, False
        # Whether the counts are in the database: written by the thread that renews.
        self._is_added = False

    def is_due(self):
        """Whether it is time, or worth a statement because of what the row says."""
        timers = self._core.timers
        has_news = timers.passed("news") and self._has_news()
        return timers.due("renew", settings.RENEW_EVERY) or has_news

    def joined(self):
        """The daemon has another row, which says nothing of it yet."""
        self._may_be_handed, self._unheard_since = False, None
        self._row_idle, self._row_mode, self._row_channel = None, Mode.RUNNING, ""

    def handed(self):
        """An enqueue has handed over a Task: since then the row does not say idle any more."""
        self._handings += 1
        self._row_idle = self._may_be_handed = False

    def may_be_handed(self):
        """Whether an enqueue may hand over something, or has, of which nobody has heard yet."""
        return self._may_be_handed

    def may_have_missed_handing(self):
        """Whether the channel that stands in the row cannot be heard any more.

        A Task that was handed over there is held under this identity, and only another
        identity makes sure of it.
        """
        channel = self._row_channel
        return self._core.identity.current is not None and channel not in (
            "",
            self._wakeups.channel,
        )

    def locked(self, result):
        """A renewal has met a lock of somebody else: it is made again, but for counts it added."""
        if result.doing == RENEWING:
            self._core.statistics.answered(self._is_added)
            self._was_locked = True
            self._core.timers.later("renew", LOOK_AGAIN)

    def _mode(self):
        """The mode that the row may say: quiet only once no claim is on its way any more."""
        mode = self._orders.mode
        return Mode.RUNNING if mode is Mode.QUIET and self._claiming.is_claiming else mode

    def _has_news(self):
        """Whether the row should say something else of the daemon.

        An enqueue notifies only if some daemon is idle. Each notice costs the server a
        lock, so a daemon at work takes that back after a while.
        """
        mode = self._mode()
        # One that stops with nothing to wait for is gone before anybody looks.
        if mode is not self._row_mode and (mode is not Mode.STOPPING or self._attempts.any()):
            return True
        if self._claiming.is_idle():
            self._busy_since = uptime()
            channel = self._wakeups.channel
            return self._row_idle is not True or self._row_channel != channel
        return self._row_idle is True and uptime() - self._busy_since >= TELL_BUSY_AFTER

    def start(self, thread):
        """Renew in this thread."""
        core, daemon = self._core, self._core.identity.current
        workers, idle, mode = self._attempts.workers(), self._claiming.is_idle(), self._mode()
        channel, misfits = self._wakeups.channel, core.misfits.by_type()
        if self._row_channel not in ("", channel):
            return  # it was lost just now; the next turn will find that
        # From now on something may be handed over there.
        row_channel_before, self._row_channel = self._row_channel, channel
        handings = self._handings
        self._may_be_handed = self._may_be_handed or idle
        core.timers.later("renew", settings.RENEW_EVERY)

        # A row that was locked just now is not to be waited for once more.
        counts = None if self._was_locked else core.statistics.send()

        def renewed(result):
            renewal = result.value
            core.statistics.answered(self._is_added)
            core.identity.renewed(renewal.time, result.sent, result.received)
            core.tell(messages.LeaseRenewed(core.identity.lease_until))
            self._orders.obey(renewal.request)
            self._was_locked = renewal.is_spare
            if renewal.is_spare:
                # The row says what it said before.
                self._row_channel = row_channel_before
                core.timers.later("news", SAY_AGAIN)
                core.caution.met(RENEWING)
                return
            if idle and not self._row_idle:
                # Nobody has notified of what was enqueued before this was known.
                core.queue.call()
            self._may_be_handed = idle or renewal.unheard
            self._check_listener(renewal.unheard)
            # A Task that was handed over meanwhile may have come before this renewal: then
            # the row is written once more.
            self._row_idle = idle and handings == self._handings
            self._row_mode = mode

        def renew():
            # Before the row says idle: an enqueue leaves a row alone that is locked.
            self._is_added = counts is not None and core.store.statistics.add(daemon, counts)
            return core.store.renew(
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
        """Lose the identity if something stays ``unheard`` that was handed over."""
        if not unheard:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = uptime()
        elif uptime() - self._unheard_since >= settings.RENEW_EVERY:
            # The listener goes on, and does not see it.
            journal.channel_lost()
            self._core.identity.lose()
