"""Caution: locks that other sessions hold are looked for before anything is written."""

from .. import journal
from ..system.processes import uptime

# After a lock of another session was met, calls are careful for so long, in seconds. That
# costs a claim, and a batch that is recorded, some statements more.
CAREFUL_FOR = 5.0


class Caution:
    """Whether calls to the store are to be careful now."""

    def __init__(self):
        self._until = 0.0

    def met(self, doing):
        """A call has met a lock that another session holds; ``doing`` says which call."""
        if not self.is_advised:
            journal.lock_met(doing=doing)
        self._until = uptime() + CAREFUL_FOR

    @property
    def is_advised(self):
        """Whether a lock was met lately."""
        return uptime() < self._until
