"""Attempts that were asked to end: first asked, then killed."""

from ..conf import settings
from .processes import uptime

# An attempt that is asked to end because its daemon stops gets this long, in seconds.
STOP_GRACE = 1.0


class Endings:
    """What was asked to end and has not. ``tell(kind, …)`` speaks to the supervisor."""

    def __init__(self, pool, page, tell, hand_back):
        self._pool = pool
        self._page = page
        self._tell = tell
        self._hand_back = hand_back
        self._kills = {}

    def ask(self, instance, attempt, event, why="release requested"):
        """Make an attempt end: handed back if no worker has it, else asked, then killed."""
        self._ask((instance, attempt), event, why, settings.RELEASE_GRACE)

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
            holding.ask, holding.why = event, why
            self._page.ask(link.slot, *key)
        at = uptime() + grace
        self._kills[key] = min(self._kills.get(key, at), at)

    def forget(self, key):
        """The attempt has ended."""
        self._kills.pop(key, None)

    def kill_overdue(self):
        """Have the supervisor kill what has not ended in its time."""
        for key, at in list(self._kills.items()):
            if uptime() >= at:
                del self._kills[key]
                link, holding = self._pool.find(key)
                if holding is not None:
                    self.kill(link, key, holding.why)

    def kill(self, link, key, why):
        """Have the supervisor kill a worker, if it is still running this attempt."""
        self._tell("kill", link.slot, link.pid, *key, why)
