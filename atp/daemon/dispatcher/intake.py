"""The intake of the workers' messages, as long as the database can record them.

Handlers may send messages faster than the database writes them, above all if it is slow or
down. If too many entries wait to be recorded, the dispatcher stops reading messages until
fewer do. The messages wait in the workers' channels, and in the end the workers wait too.
"""

import selectors

# The number of waiting Moves and Notes at which the intake stops, and at which it resumes.
MOST, AGAIN = 5000, 2500


class Intake:
    """The intake from the workers' channels and rings. ``is_behind``: it reads none of them."""

    def __init__(self, selector, unrecorded, reader):
        self._selector = selector
        self._unrecorded = unrecorded
        self._reader = reader
        self._links = set()
        self.is_behind = False

    def add(self, link):
        """Read the messages of this worker from now on."""
        self._links.add(link)
        if not self.is_behind:
            self._listen(link)

    def remove(self, link):
        """Read the last messages of a dead worker, and stop listening to it."""
        self._reader.collect(link)
        self._links.discard(link)
        if not self.is_behind:
            self._selector.unregister(link.channel)

    def turn(self):
        """Read the rings of the workers, unless too many entries wait to be recorded."""
        if self.is_behind and len(self._unrecorded) <= AGAIN:
            self.is_behind = False
            for link in self._links:
                self._listen(link)
        elif not self.is_behind and len(self._unrecorded) >= MOST:
            self.is_behind = True
            for link in self._links:
                self._selector.unregister(link.channel)
        for link in self._links:
            if link.ring.has_news and not self.is_behind:
                self._reader.collect(link)

    def _listen(self, link):
        self._selector.register(link.channel, selectors.EVENT_READ, lambda: self._take_in(link))

    def _take_in(self, link):
        link.is_stuck = False
        self._reader.collect(link)
