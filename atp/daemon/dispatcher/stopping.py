"""Stopping a dispatcher: running tasks get their grace, and ended ones are recorded."""

from ... import messages
from ...states import Event
from .. import journal
from ..membership.renewal import LOOK_AGAIN
from ..system.processes import uptime

# The exit statuses of a dispatcher; the supervisor takes any other for a death.
DONE, UNDELIVERED, ORPHANED = 0, 4, 5
# After its grace a stopping daemon tries this long to record its results, in seconds.
DELIVERY_GRACE = 10.0
# It logs what it waits for from SOON after the grace, every TELL_UNDELIVERED, in seconds.
SOON, TELL_UNDELIVERED = 1.0, 3.0


class Stopping:
    """The stop of the dispatcher, which waits until the calls of the ``threads`` have ended."""

    def __init__(self, core, threads, attempts, orders, recording):
        self._core = core
        self._threads = threads
        self._attempts = attempts
        self._orders = orders
        self._recording = recording
        self._at = None
        # Whether the daemon has given up its row.
        self.has_left = False

    @property
    def is_stopping(self):
        return self._at is not None

    def stop(self, grace):
        """Claim nothing more; give running tasks ``grace`` seconds, then hand them back."""
        at = uptime() + grace
        self._at = at if self._at is None else min(self._at, at)
        self._orders.stop()

    def turn(self):
        """Go on with stopping; return the exit status when it is over, else None."""
        if self._at is None:
            return None
        core, (claimer, recorder) = self._core, self._threads
        over = uptime() - self._at
        if over >= 0 and len(core.pool):
            self._attempts.ending.ask_all(Event.RELEASE, messages.daemon_stopping())
        if over >= 0 and core.timers.due("undelivered", TELL_UNDELIVERED):
            self._tell_undelivered(over)
        if len(core.pool) or len(core.unrecorded) or recorder.busy:
            if over <= DELIVERY_GRACE:
                return None
            journal.undelivered(count=len(core.unrecorded))
            return UNDELIVERED
        if core.identity.current is None:
            # Without an identity there is no row to give up; the lease runs out by itself.
            return DONE
        if over > DELIVERY_GRACE:
            return DONE  # another session has locked the daemon's row
        if not claimer.busy and core.timers.passed("leave"):
            self._recording.leave(self._left)
        return None

    def _tell_undelivered(self, over):
        """Log why a stopping daemon has not ended yet."""
        if over < SOON:
            return  # most daemons end before that
        claimer, recorder = self._threads
        doing = recorder.doing or claimer.doing
        if doing:
            left = max(0.0, DELIVERY_GRACE - over)
            journal.delivering(doing=doing, count=len(self._core.unrecorded), seconds=left)

    def is_drained(self, found_nothing):
        """Tell whether neither this daemon nor the queue has anything left to do."""
        return (
            found_nothing
            and not len(self._core.pool)
            and not len(self._core.unrecorded)
            and not any(thread.busy for thread in self._threads)
        )

    def _left(self, has_left):
        self.has_left = has_left
        self._core.timers.later("leave", LOOK_AGAIN)
