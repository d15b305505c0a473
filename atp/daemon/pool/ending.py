"""The ends of attempts on request: an attempt is asked first, then interrupted or killed."""

from ... import messages
from ...commands import CANCEL, RELEASE
from ...conf import settings
from ...states import Event
from ..shared.messages import Interrupt, Kill
from ..shared.outcome import cancel_grace
from ..system.processes import uptime

# An attempt that is asked to end because its daemon stops gets this long, in seconds.
STOP_GRACE = 1.0
# A cancelled attempt gets at least this long, in seconds, however late the daemon reads the ask.
LEAST_GRACE = 0.25


class Ending:
    """The attempts that were asked to end. ``tell(message)`` sends to the supervisor."""

    def __init__(self, pool, page, tell, hand_back):
        self._pool = pool
        self._page = page
        self._tell = tell
        self._hand_back = hand_back
        self._kills = {}

    def asked(self, asked):
        """Obey an ask to the holder of a Task: cancel or release."""
        key = asked.instance, asked.attempt
        if asked.request == CANCEL:
            self.cancel(key, messages.cancelled(asked.who), asked.age)
        elif asked.request == RELEASE:
            self._ask(key, Event.RELEASE, messages.command_sent(RELEASE), settings.RELEASE_GRACE)

    def cancel(self, key, why, age=0.0):
        """Make a running attempt end as CANCELLED; the cancel is ``age`` seconds old.

        An attempt that has not started is handed back, and the store cancels its Instance.
        """
        self._pool.take_unstarted_back(key)
        _, holding = self._pool.find(key)
        grace = 0.0 if holding is None else cancel_grace(holding.type)
        self._ask(key, Event.FAIL, why, max(grace - age, min(grace, LEAST_GRACE)))

    def ask_all(self, event, why):
        """Ask every attempt that this daemon holds to end within STOP_GRACE."""
        for holding in list(self._pool.holdings()):
            self._ask(holding.key, event, why, STOP_GRACE)

    def _ask(self, key, event, why, grace):
        waiting = self._pool.take_waiting(key)
        if waiting is not None:
            self._hand_back([waiting], why)
            return
        link, holding = self._pool.find(key)
        if holding is None or holding is link.reserved:
            return  # a reserved Task will be with its worker in a moment
        if not holding.ask:
            self._page.ask(link.slot, *key)
        if holding.ask not in (event, Event.FAIL):  # no later ask replaces a cancel
            holding.ask, holding.why = event, why
            if event == Event.FAIL:
                self._tell(Interrupt(link.slot, link.pid, key))
        at = uptime() + grace
        self._kills[key] = min(self._kills.get(key, at), at)

    def forget(self, key):
        """Forget the kill of an attempt that has ended."""
        self._kills.pop(key, None)

    def pause(self, longest):
        """Return the time until the next kill, in seconds, ``longest`` at most."""
        if not self._kills:
            return longest
        return max(0.0, min(longest, min(self._kills.values()) - uptime()))

    def kill_overdue(self):
        """Ask the supervisor to kill the attempts that have not ended within their grace."""
        for key, at in list(self._kills.items()):
            if uptime() >= at:
                del self._kills[key]
                link, holding = self._pool.find(key)
                if holding is not None:
                    self.kill(link, key, holding.why)

    def kill(self, link, key, why):
        """Ask the supervisor to kill a worker if it still runs this attempt."""
        self._tell(Kill(link.slot, link.pid, key, why))
