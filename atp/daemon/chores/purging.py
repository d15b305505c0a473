"""Removing Instances whose retention is over, in a thread beside claiming and recording."""

from django.db import connections

from ...conf import settings
from ...store.facts import Marks
from .. import journal
from ..system.processes import uptime
from .chore import Chore

PURGING = "purging"
# The number of Instances that are removed at once. It grows as long as the daemon is behind,
# and shrinks if a removal takes more than LONG seconds or fails.
FEWEST, FIRST, MOST = 10, 500, 5000
LONG = 1.0
# If more is left, the chore rests for a multiple (by vendor) of the time that the last removal
# took, and for LONGEST_REST seconds at most.
REST = {"sqlite": 2.0}
LONGEST_REST = 0.2
# Behind Instances that cannot be removed, the chore rests ever longer, up to this, in seconds.
LONGEST_BEHIND = 5.0
# If nothing is left, the chore runs again when it expects half a piece, no sooner than this.
SHORTEST = 0.1
# The connection is kept for the next removal only if that comes within this many seconds.
SOON = 5.0


class Purge(Chore):
    """The chore that purges Instances, and decides how many it removes at once, and when.

    It holds nothing under the daemon's identity, so the daemon keeps that if the chore fails.
    """

    name, doing = "purge", PURGING

    def __init__(self, *parts):
        super().__init__(*parts)
        self._timers = self.core.timers
        self._rest = REST.get(connections[settings.DATABASE].vendor, 1.0)
        self._limit = FIRST
        self._pause = settings.PURGE_EVERY
        self._marks = Marks()
        self._behind = LONGEST_REST
        self._untold = 0

    def every(self):
        return settings.PURGE_EVERY

    def may(self):
        return self.core.identity.is_registered

    def call(self):
        goes_on = self._marks.passes_kept
        if not goes_on and self._timers.due("purge everywhere", settings.PURGE_EVERY):
            # Instances that earlier turns left out, or that ended late, lie before the marks.
            self._marks.clear()
        limit, marks, pause = self._limit, self._marks, self._pause

        def purge():
            began = uptime()
            count = self.core.store.removal.purge(limit=limit, marks=marks)
            if count < limit and pause > SOON:
                connections[settings.DATABASE].close()
            return count, uptime() - began, limit, marks.passes_kept

        return purge

    def done(self, result):
        self._purged(*result.value)

    def _purged(self, count, seconds, limit, passes_kept):
        self._untold += count
        # A busy daemon removes all the time, and logs a sum only every PURGE_EVERY.
        if self._untold and self._timers.due("purged", settings.PURGE_EVERY):
            journal.purged(count=self._untold)
            self._untold = 0
        if passes_kept:
            # Others lie behind those that could not be removed.
            self._behind = LONGEST_REST if count else min(LONGEST_BEHIND, 2 * self._behind)
            self._timers.later("purge", self._behind)
            return
        self._behind = LONGEST_REST
        if count >= limit:
            if seconds < LONG:
                self._limit = min(MOST, 2 * limit)
            else:
                # A limit that failed calls have lowered stays: they would fail again.
                self._limit = max(min(FIRST, limit), limit // 2)
            self._pause = max(SHORTEST, self._pause / 2)
            self._timers.later("purge", min(LONGEST_REST, self._rest * seconds))
            return
        self._pause *= _within(limit / 2 / max(count, 1))
        self._pause = max(SHORTEST, min(settings.PURGE_EVERY, self._pause))
        self._timers.later("purge", self._pause)

    def failed(self, result):
        """Try again after PURGE_EVERY, on a new connection, with half as many at once."""
        self._limit = max(FEWEST, self._limit // 2)
        journal.purge_failed(error=" ".join(str(result.error).split()))
        self._timers.later("purge", settings.PURGE_EVERY)


def _within(factor):
    """Return the factor, limited to between a half and two."""
    return max(0.5, min(2.0, factor))
