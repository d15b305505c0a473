"""Misfits: Instances whose inputs did not fit this daemon's handlers lately."""

from collections import defaultdict

from ...conf import settings
from ..system.processes import uptime

# The most Instances that are remembered, and the time until they are forgotten, in seconds.
MOST, FORGET_AFTER = 1000, 3600.0
# After a misfit this daemon leaves the Type to other daemons for this long, in seconds. It knows
# first when the Instance is due again, and would claim it before the others. If it gets the same
# Instance again, it leaves the Type for POLL_EVERY longer: by then the others have looked.
LEAVE_FOR = 0.3


class Misfits:
    """The keys of misfit Instances, with the identifiers of their Types, for the daemon's row.

    If ``leaves`` is true, the Type is left to other daemons for a moment after each misfit.
    """

    def __init__(self, *, leaves=True):
        self._types = {}
        self._leaves = leaves
        # The time until which each Type is left to other daemons, on the uptime clock.
        self._left = {}

    def add(self, type, instance):
        """Add an Instance whose inputs did not fit; if there are too many, drop the oldest."""
        now = uptime()
        is_first = self._types.pop(instance, None) is None
        self._types[instance] = type, now
        if self._leaves:
            until = now + LEAVE_FOR + (0.0 if is_first else settings.POLL_EVERY)
            self._left[type] = max(until, self._left.get(type, until))
        if len(self._types) > MOST:
            del self._types[next(iter(self._types))]

    def claimable(self, types):
        """Return the given Types without those that are left to other daemons now."""
        if not self._left:
            return types
        now = uptime()
        self._left = {type: until for type, until in self._left.items() if until > now}
        return tuple(type for type in types if type not in self._left)

    def by_type(self):
        """Return a dict of lists: the keys of misfit Instances by the identifier of their Type."""
        limit, found = uptime() - FORGET_AFTER, defaultdict(list)
        for instance, (type, at) in list(self._types.items()):
            if at < limit:
                del self._types[instance]
            else:
                found[type].append(instance)
        return dict(found)
