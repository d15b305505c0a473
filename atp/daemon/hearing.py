"""Hearing the workers, as long as what they say can be recorded.

Handlers may say things faster than a database writes them, above all one that
is slow or away. When much waits to be recorded, the workers are not heard until
it has become less: what they say waits with them, and in the end they do too.
"""

import selectors

# So many changes and notes may wait before nothing more is heard, and so many when
# it is again.
MOST, AGAIN = 5000, 2500


class Hearing:
    """The channels and rings of the workers. ``is_behind`` says that they are not heard."""

    def __init__(self, selector, ledger, attempts):
        self._selector = selector
        self._ledger = ledger
        self._attempts = attempts
        self._links = set()
        self.is_behind = False

    def add(self, link):
        """Hear this worker from now on."""
        self._links.add(link)
        if not self.is_behind:
            self._listen(link)

    def remove(self, link):
        """The worker is dead: hear what it said last, and no more."""
        self._attempts.collect(link)
        self._links.discard(link)
        if not self.is_behind:
            self._selector.unregister(link.channel)

    def turn(self):
        """Hear what the workers say without calling, unless too much waits to be recorded."""
        if self.is_behind and len(self._ledger) <= AGAIN:
            self.is_behind = False
            for link in self._links:
                self._listen(link)
        elif not self.is_behind and len(self._ledger) >= MOST:
            self.is_behind = True
            for link in self._links:
                self._selector.unregister(link.channel)
        for link in self._links:
            if link.ring.has_news and not self.is_behind:
                self._attempts.collect(link)

    def _listen(self, link):
        self._selector.register(link.channel, selectors.EVENT_READ, lambda: self._hear(link))

    def _hear(self, link):
        link.is_stuck = False
        self._attempts.collect(link)
