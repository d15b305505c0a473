"""Timers by name, on the uptime clock."""

from .processes import uptime


class Timers:
    """A set of timers by name. A timer that was never set is due at once."""

    def __init__(self):
        self._next = {}

    def due(self, name, every, early=0.0):
        """Tell whether the timer is due; if so, set it to ``every`` seconds from now.

        The timer counts as due up to ``early`` seconds before its time, so that a loop that is
        awake anyway need not wake up again for it.
        """
        now = uptime()
        if now + early < self._next.get(name, 0):
            return False
        self._next[name] = now + every
        return True

    def passed(self, name):
        """Tell whether the timer is due, without setting it again."""
        return uptime() >= self._next.get(name, 0)

    def later(self, name, seconds):
        """Set the timer to ``seconds`` from now."""
        self._next[name] = uptime() + seconds

    def now(self, name):
        """Make the timer due at once."""
        self._next[name] = 0

    def pause(self, longest):
        """Return the time until the next timer is due, in seconds, ``longest`` at most."""
        now = uptime()
        return max(0.0, min([longest, *(at - now for at in self._next.values() if at > now)]))
