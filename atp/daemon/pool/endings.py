"""The ends of attempts on request: an attempt is asked first, then interrupted or killed."""

from ...conf import settings
from ...states import Event
from ...store.values import CANCEL, RELEASE
from ...words import attempt_messages
from ..shared.messages import Interrupt, Kill
from ..shared.outcome import cancel_grace
from ..system.processes import uptime

# An attempt that is asked to end because its daemon stops gets this long, in seconds.
STOP_GRACE = 1.0
# One that is cancelled gets at least so long, in seconds, however late it is heard of.
LEAST_GRACE = 0.25


class Endings:
    """The attempts that were asked to end. ``tell(message)`` speaks to the supervisor."""

    def __init__(self, pool, page, tell, hand_back):
        self._pool = pool
        self._page = page
        self._tell = tell
        self._hand_back = hand_back
        self._kills = {}

    def asked(self, asked):
        """Do what was asked of the holder of a Task."""
        key = asked.instance, asked.attempt
        if asked.request == CANCEL:
            self.cancel(key, attempt_messages.cancelled(asked.who), asked.age)
        elif asked.request == RELEASE:
            self._ask(key, Event.RELEASE, attempt_messages.asked(RELEASE), settings.RELEASE_GRACE)

    def cancel(self, key, why, age=0.0):
        """Make an attempt end as CANCELLED; it is so many seconds since that was asked for.

        Only one that runs: what has not started is handed back, and the store honours
        the request.
        """
        self._pool.take_unstarted_back(key)
        _, holding = self._pool.find(key)
        grace = 0.0 if holding is None else cancel_grace(holding.type)
        self._ask(key, Event.FAIL, why, max(grace - age, min(grace, LEAST_GRACE)))

    def ask_all(self, event, why):
        """Make every attempt end that is in this daemon's hands, soon."""
        for holding in list(self._pool.holdings()):
            self._ask(holding.key, event, why, STOP_GRACE)

    def _ask(self, key, event, why, grace):
        waiting = self._pool.take_waiting(key)
        if waiting is not None:
            self._hand_back([waiting], why)
            return
        link, holding = self._pool.find(key)
        if holding is None or holding is link.reserved:
            return  # a reserved one is with its worker in a moment
        if not holding.ask:
            self._page.ask(link.slot, *key)
        if holding.ask not in (event, Event.FAIL):  # whatever else is asked, a cancel stays
            holding.ask, holding.why = event, why
            if event == Event.FAIL:
                self._tell(Interrupt(link.slot, link.pid, key))
        at = uptime() + grace
        self._kills[key] = min(self._kills.get(key, at), at)

    def forget(self, key):
        """The attempt has ended."""
        self._kills.pop(key, None)

    def pause(self, longest):
        """Return for how long nothing has to be killed, in seconds, ``longest`` at most."""
        if not self._kills:
            return longest
        return max(0.0, min(longest, min(self._kills.values()) - uptime()))

    def kill_overdue(self):
        """Have the supervisor kill the attempts that have not ended in their time."""
        for key, at in list(self._kills.items()):
            if uptime() >= at:
                del self._kills[key]
                link, holding = self._pool.find(key)
                if holding is not None:
                    self.kill(link, key, holding.why)

    def kill(self, link, key, why):
        """Have the supervisor kill a worker, if it is still running this attempt."""
        self._tell(Kill(link.slot, link.pid, key, why))
