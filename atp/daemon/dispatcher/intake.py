"""The intake of the workers' messages, as long as they can be recorded.

Handlers may say things faster than a database writes them, above all a database that
is slow or away. When much waits to be recorded, no messages are taken in until less does:
they wait in the workers' channels, and in the end the workers wait too.
"""

import selectors

# With so many moves and notes that wait no messages are taken in any more, and with so
# few they are again.
MOST, AGAIN = 5000, 2500


class Intake:
    """The channels and rings of the workers. ``is_behind`` says that none is read."""

    def __init__(self, selector, unrecorded, reader):
        self._selector = selector
        self._unrecorded = unrecorded
        self._reader = reader
        self._links = set()
        self.is_behind = False

    def add(self, link):
        """Take in the messages of this worker from now on."""
        self._links.add(link)
        if not self.is_behind:
            self._listen(link)

    def remove(self, link):
        """The worker is dead: take in the last of its messages."""
        self._reader.collect(link)
        self._links.discard(link)
        if not self.is_behind:
            self._selector.unregister(link.channel)

    def turn(self):
        """Read the rings of the workers, unless too much waits to be recorded."""
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
