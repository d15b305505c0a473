"""Shortcuts of claims on PostgreSQL: a claim takes them for a moment, where a look was slow.

Each is an object of its own in the memory of the daemon that claims. A claim that takes none
of them finds the same, and may take longer.
"""

import time

from .driver.statements import FEW

# A look was slow if it took longer to find what is due, in seconds: so much was stepped over
# that is gone. The next claims begin where this one ended for so many times as long, and no
# longer than that.
SLOW, TIMES, AGAIN = 0.005, 20, 1.0
# A look at so many lanes and priorities is slow sooner. Then the next claims do not look
# between the lanes that are known.
MANY, SLOW_OF_MANY = 100, 0.001
# It does not help where a look at so many lanes has taken no longer for each, in seconds.
EACH = 20e-6
# Where more waits of more Types than this than a claim takes, the next claims look at so many
# of them, in turn; and at all again after so long, in seconds.
PART, ALL_AGAIN = 24, 0.1


class Ends:
    """The ends of the last claims, by Type and collection: priority and due time.

    While that is relied on, claims begin there and not at the beginning of each lane. ``cut``
    says where the last look at everything was broken off, as pairs of a Type and a collection:
    the next one goes on there, wherever the claims between them end.
    """

    def __init__(self):
        self._lanes = {}
        self.until = 0.0
        self.cut = []
        # Whether other lanes are looked for between those that are known.
        self.looks_between = True

    @property
    def lanes(self):
        """The ends where the next claim is to begin; empty if it is to look at everything."""
        return self._lanes if time.monotonic() < self.until else {}

    def forget(self):
        self._lanes = {}

    def claimed(self, ends):
        """Remember where a claim ended in these lanes; the last ones come last."""
        for lane in ends:
            self._lanes.pop(lane, None)
        self._lanes |= ends

    def looked(self, look):
        """Decide after a look at everything where the claims of the next moment begin.

        They begin at the ends if it was slow, or if there was too much to look at all.
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
    """The Types that the last look at all has taken from, if more waited than it took.

    While that is relied on, claims look at a part of these.
    """

    def __init__(self):
        self.types = frozenset()
        self.until = 0.0

    def of(self, types):
        """Return those of ``types`` to look at, in their order; None if all are to be."""
        if len(self.types) <= PART or time.monotonic() >= self.until:
            return None
        return [type for type in types if type in self.types][:PART]

    def looked(self, claimed, limit):
        """Remember a claim after a look at all."""
        self.until = time.monotonic() + ALL_AGAIN
        has_more = len(claimed) >= limit
        self.types = frozenset(task.type for task in claimed) if has_more else frozenset()
