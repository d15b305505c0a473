"""The intake of the workers' messages, as long as the database can record them.

Handlers may send messages faster than the database writes them, above all if it is slow or
down. If too many entries wait to be recorded, the dispatcher stops reading messages until
fewer do. The messages wait in the workers' channels, and in the end the workers wait too.

Entries that wait for a lock of another session concern their own attempt alone: if it has too
many, only its worker's messages wait.
"""

import selectors

# The number of waiting Moves and Notes at which the intake stops, and at which it resumes.
MOST, AGAIN = 5000, 2500
# The number of entries of one attempt behind a lock at which its worker's messages wait.
MOST_ASIDE = 1000


class Intake:
    """The intake from the workers' channels and rings. ``is_behind``: it reads none of them."""

    def __init__(self, selector, unrecorded, reader):
        self._selector = selector
        self._unrecorded = unrecorded
        self._reader = reader
        self._links = set()
        # The links whose channels the selector watches.
        self._heard = set()
        self.is_behind = False

    def add(self, link):
        """Read the messages of this worker from now on."""
        self._links.add(link)
        self._hear(link, not self.is_behind)

    def remove(self, link):
        """Read the last messages of a dead worker, and stop listening to it."""
        self._reader.collect(link)
        self._links.discard(link)
        self._hear(link, False)

    def turn(self):
        """Read the rings of the workers, unless too many entries wait to be recorded."""
        pending = self._unrecorded.pending
        self.is_behind = pending > AGAIN if self.is_behind else pending >= MOST
        full = self._unrecorded.overfull(MOST_ASIDE) if self._unrecorded.has_aside else ()
        for link in self._links:
            # Once its attempt has ended, the end may be behind its messages.
            is_full = full and self._reader.running(link) in full
            self._hear(link, not (self.is_behind or is_full or link.channel.has_ended))
            if link.ring.has_news and not self.is_behind:
                self._reader.collect(link)

    def _hear(self, link, wanted):
        if wanted and link not in self._heard:
            self._heard.add(link)
            take_in = self._take_in
            self._selector.register(link.channel, selectors.EVENT_READ, lambda: take_in(link))
        elif not wanted and link in self._heard:
            self._heard.discard(link)
            self._selector.unregister(link.channel)

    def _take_in(self, link):
        link.is_stuck = False
        self._reader.collect(link)
        if link.channel.has_ended:
            # The worker is dead, or its handler has closed this: the selector would call for ever.
            self._hear(link, False)
