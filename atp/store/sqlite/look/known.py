"""A shortcut of claims: after a slow look, the next claims use the lanes that it has found."""

import time

# In seconds: a look takes more than SLOW if a thousand lanes have nothing due. The next claims use
# the lanes that it has found, for TIMES as long as it took, but no longer than AGAIN.
SLOW, TIMES, AGAIN = 0.001, 50, 1.0
# Asking more lanes than this one by one costs as much as a look.
MANY = 16


class Known:
    """The lanes that the last look has found, valid for a moment.

    A claim uses them if its limit is at least the number of lanes in ``last``; else it looks at
    all. ``cut`` says where the last look was broken off, as pairs of Type and collection: the next
    look goes on there, wherever the claims between them end.
    """

    def __init__(self):
        self.last = []
        self.cut = []
        self._until = 0.0

    def lanes(self, limit):
        """Return pairs of a Type's key and a collection; none if the claim has to look at all."""
        if time.monotonic() >= self._until or limit < len(self.last):
            return []
        return self.last

    def forget(self):
        self._until = 0.0

    def found(self, lanes, cut, limit, seconds):
        """Remember the lanes that a look for up to ``limit`` Tasks has found in ``seconds``."""
        self.cut = cut
        self.last = [(type, collection) for type, collection, _ in lanes[:MANY]]
        if seconds > SLOW and len(lanes) <= MANY and len(lanes) < limit:
            self._until = time.monotonic() + min(AGAIN, TIMES * seconds)
