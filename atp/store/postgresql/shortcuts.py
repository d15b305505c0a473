"""Shortcuts of claims on PostgreSQL: used for a moment after a look was slow.

Each shortcut is an object in the memory of the claiming daemon. A claim without shortcuts finds
the same Tasks, but may take longer.
"""

import time

from .driver.statements import FEW

# In seconds, a look is slow if it needs more than SLOW to find due Tasks: then it has stepped over
# many dead rows. The next claims begin where this one ended, for TIMES as long as the look took,
# but no longer than AGAIN.
SLOW, TIMES, AGAIN = 0.005, 20, 1.0
# A look of at least MANY steps, over lanes and priorities, is slow after SLOW_OF_MANY seconds. Then
# the next claims do not look between the known lanes.
MANY, SLOW_OF_MANY = 100, 0.001
# In seconds: the shortcut does not help if the look took no longer than this for each lane.
EACH = 20e-6
# If a claim leaves Tasks of more Types than PART waiting, the next claims look at PART Types each,
# in turn. After ALL_AGAIN seconds a claim looks at all Types.
PART, ALL_AGAIN = 24, 0.1


class Ends:
    """The positions where the last claims ended: priority and due time, by lane.

    While they are valid, claims begin there instead of at the beginning of each lane. ``cut`` says
    where the last full look was broken off, as pairs of Type and collection: the next full look
    goes on there, wherever the claims between them end.
    """

    def __init__(self):
        self._lanes = {}
        self.until = 0.0
        self.cut = []
        # Whether claims look for other lanes between the known ones.
        self.looks_between = True

    @property
    def lanes(self):
        """The positions where the next claim begins, by lane; empty for a full look."""
        return self._lanes if time.monotonic() < self.until else {}

    def forget(self):
        self._lanes = {}

    def claimed(self, ends):
        """Remember where a claim ended in these lanes; lanes are kept in the order of use."""
        for lane in ends:
            self._lanes.pop(lane, None)
        self._lanes |= ends

    def looked(self, look):
        """Decide, after a full look, where the claims of the next moment begin.

        They begin at the known ends if the look was slow, or was broken off.
        """
        self.cut = look.cut or []
        looked, is_long = look.looked or 0.0, look.steps >= MANY
        each = looked / max(1, len(self._lanes))
        is_slow = looked > (SLOW_OF_MANY if is_long else SLOW)
        if look.cut and self._lanes:
            self.until = time.monotonic() + AGAIN
            self.looks_between = False
        elif is_slow and each > EACH and len(look.rows) > FEW:
            self.until = time.monotonic() + min(AGAIN, TIMES * looked)
            self.looks_between = not is_long
        else:
            self.until = 0.0


class Part:
    """The Types of the last full look's Tasks, if more waited than it took.

    While they are valid, claims look at a part of these Types.
    """

    def __init__(self):
        self.types = frozenset()
        self.until = 0.0

    def of(self, types):
        """Return the part of ``types`` to look at, in their order; None for all of them."""
        if len(self.types) <= PART or time.monotonic() >= self.until:
            return None
        return [type for type in types if type in self.types][:PART]

    def looked(self, claimed, limit):
        """Remember the Types of a claim that has looked at all Types."""
        self.until = time.monotonic() + ALL_AGAIN
        has_more = len(claimed) >= limit
        self.types = frozenset(task.type for task in claimed) if has_more else frozenset()
