"""Lanes that the next claims are from, after a look at all of them has taken long."""

import time

# A look took so long, in seconds, if a thousand lanes have nothing due. For so many times as
# long, and no longer than that, the next claims are from the lanes that it has found.
SLOW, TIMES, AGAIN = 0.001, 50, 1.0
# To ask more of them one by one costs as much as a look.
MANY = 16


class Known:
    """What was found last, for a moment: a claim of less than there are looks at all.

    ``last`` is that without the moment.
    """

    def __init__(self):
        self.last = []
        self._until = 0.0

    def lanes(self, limit):
        """Pairs of a Type's key and a collection; none where a look is due, or the limit small."""
        if time.monotonic() >= self._until or limit < len(self.last):
            return []
        return self.last

    def forget(self):
        self._until = 0.0

    def found(self, lanes, limit, seconds):
        """A look for up to ``limit`` lanes has taken so long."""
        self.last = [(type, collection) for type, collection, _ in lanes[:MANY]]
        if seconds > SLOW and len(lanes) <= MANY and len(lanes) < limit:
            self._until = time.monotonic() + min(AGAIN, TIMES * seconds)
