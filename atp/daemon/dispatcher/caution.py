"""Caution: for a while, calls look for locks of other sessions before they write."""

from .. import journal
from ..system.processes import uptime

# After a call has met a lock of another session, calls are careful for this many seconds. Then
# a claim, and the recording of a batch, take some more statements.
CAREFUL_FOR = 5.0


class Caution:
    """The decision whether calls to the store have to be careful now."""

    def __init__(self):
        self._until = 0.0

    def met(self, doing):
        """Note that a call has met a lock of another session; ``doing`` names the call."""
        if not self.is_advised:
            journal.lock_met(doing=doing)
        self._until = uptime() + CAREFUL_FOR

    @property
    def is_advised(self):
        """Whether a call has met a lock within the last CAREFUL_FOR seconds."""
        return uptime() < self._until
