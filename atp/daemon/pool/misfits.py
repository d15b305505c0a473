"""The Instances whose inputs the handlers of this daemon did not take of late."""

from collections import defaultdict

from ...conf import settings
from ..system.processes import uptime

# So many are remembered, and for so long, in seconds.
MOST, FORGET_AFTER = 1000, 3600.0
# For so long, in seconds, a Type is left to others after its inputs did not fit: this daemon
# knows first that they are due again, and would claim them before anybody else. If it was
# first all the same, it leaves the Type for as long as others may take until they look, too.
LEAVE_FOR = 0.3


class Misfits:
    """Keys of Instances, with the identifiers of their Types; the daemon's row tells them.

    With ``leaves`` a Type is left to others for a moment after each.
    """

    def __init__(self, *, leaves=True):
        self._types = {}
        self._leaves = leaves
        # By Type, until when it is left to others, on the uptime clock.
        self._left = {}

    def add(self, type, instance):
        """The inputs of an Instance did not fit; the last that is added is kept longest."""
        now = uptime()
        is_first = self._types.pop(instance, None) is None
        self._types[instance] = type, now
        if self._leaves:
            until = now + LEAVE_FOR + (0.0 if is_first else settings.POLL_EVERY)
            self._left[type] = max(until, self._left.get(type, until))
        if len(self._types) > MOST:
            del self._types[next(iter(self._types))]

    def claimable(self, types):
        """Return those of the Types that are not left to others at this moment."""
        if not self._left:
            return types
        now = uptime()
        self._left = {type: until for type, until in self._left.items() if until > now}
        return tuple(type for type in types if type not in self._left)

    def by_type(self):
        """Return lists of keys by the identifier of the Type."""
        limit, found = uptime() - FORGET_AFTER, defaultdict(list)
        for instance, (type, at) in list(self._types.items()):
            if at < limit:
                del self._types[instance]
            else:
                found[type].append(instance)
        return dict(found)
