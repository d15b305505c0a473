"""Attempts that count for a limit on how many may run at once."""

from ...states import events
from ...store.values import Move

# The events that send an Instance back to the queue, and those that end an attempt.
PUTS_BACK = events(lambda row: row.puts_back)
ENDS = events(lambda row: row.ends)


class LimitedAttempts:
    """The limited attempts of this daemon. ``queue`` is told when another may be started."""

    def __init__(self, queue):
        self._queue = queue
        # The Type and the collection of each, by key, until its end is recorded.
        self._lanes = {}
        # The keys of those that are being handed back without having begun.
        self._unstarted = set()

    def add(self, claimed):
        """Take note of those among what was claimed that count for a limit."""
        self._lanes |= {t.key: (t.type, t.collection) for t in claimed if t.limited}

    def hand_back(self, holding):
        """This one goes back to the queue."""
        if holding.key in self._lanes and not holding.start_known:
            self._unstarted.add(holding.key)

    def ends_any(self, batch):
        """Whether these moves end one of them."""
        return bool(self._lanes) and any(
            move.event in ENDS and (move.instance, move.attempt) in self._lanes
            for move in batch
            if isinstance(move, Move)
        )

    def recorded(self, batch):
        """Take note that these moves are recorded: another attempt may be started."""
        if not self._lanes and not self._unstarted:
            return
        for move in batch:
            if move.event in ENDS:
                self._lanes.pop((move.instance, move.attempt), None)
                self._unstarted.discard((move.instance, move.attempt))
        self._queue.put_back()

    def unstarted_lanes(self, batch):
        """Return the lanes of those that these moves hand back without their having begun."""
        if not self._unstarted:
            return []
        keys = {(move.instance, move.attempt) for move in batch}
        return [self._lanes[key] for key in keys & self._unstarted]

    def reconcile(self, kept, keys=None):
        """Forget those that this daemon does not hold any more, of all or of these keys."""
        gone = (self._lanes.keys() if keys is None else keys) - kept.keys()
        self._lanes = {key: lane for key, lane in self._lanes.items() if key not in gone}
        self._unstarted &= self._lanes.keys()
