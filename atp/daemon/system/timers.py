"""Timers by name, on the uptime clock."""

from .processes import uptime


class Timers:
    """A timer that was never used is due at once."""

    def __init__(self):
        self._next = {}

    def due(self, name, every, early=0.0):
        """Tell whether it is time; if so, the next time is ``every`` seconds from now.

        Where somebody is at it anyway it may be so much ``early``: nobody has to wake up for it.
        """
        now = uptime()
        if now + early < self._next.get(name, 0):
            return False
        self._next[name] = now + every
        return True

    def passed(self, name):
        """Tell whether it is time, without starting anew."""
        return uptime() >= self._next.get(name, 0)

    def later(self, name, seconds):
        """Make it due in so many seconds."""
        self._next[name] = uptime() + seconds

    def now(self, name):
        """Make it due at once."""
        self._next[name] = 0

    def pause(self, longest):
        """Return how long nothing is due, in seconds, ``longest`` at most."""
        now = uptime()
        return max(0.0, min([longest, *(at - now for at in self._next.values() if at > now)]))
