"""A shortcut of claims: the lanes that the next ones are from, after a slow look at all."""

import time

# A look took so long, in seconds, if a thousand lanes have nothing due. For so many times as
# long, and no longer than that, the next claims are from the lanes that it has found.
SLOW, TIMES, AGAIN = 0.001, 50, 1.0
# To ask more of them one by one costs as much as a look.
MANY = 16


class Known:
    """The lanes that the last look has found, relied on for a moment.

    A claim for more than there are lanes in ``last`` relies on them. One for fewer looks at all.
    ``cut`` says where that look was broken off, as pairs of a Type and a collection: the next
    one goes on there, wherever the claims between them end.
    """

    def __init__(self):
        self.last = []
        self.cut = []
        self._until = 0.0

    def lanes(self, limit):
        """Return pairs of a Type's key and a collection; none if the claim is to look at all."""
        if time.monotonic() >= self._until or limit < len(self.last):
            return []
        return self.last

    def forget(self):
        self._until = 0.0

    def found(self, lanes, cut, limit, seconds):
        """Remember the lanes that a look for up to ``limit`` found in so many seconds."""
        self.cut = cut
        self.last = [(type, collection) for type, collection, _ in lanes[:MANY]]
        if seconds > SLOW and len(lanes) <= MANY and len(lanes) < limit:
            self._until = time.monotonic() + min(AGAIN, TIMES * seconds)
