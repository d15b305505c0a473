"""Attempts that count towards a limit on the number of attempts at once."""

from ...states import events
from ...store.values import Move

# The events that send an Instance back to the queue, and those that end an attempt.
PUTS_BACK = events(lambda row: row.puts_back)
ENDS = events(lambda row: row.ends)


class LimitedAttempts:
    """The limited attempts of this daemon. When one ends, ``queue`` learns that a place is free."""

    def __init__(self, queue):
        self._queue = queue
        # The lane (Type and collection) of each attempt, by key, until its end is recorded.
        self._lanes = {}
        # The keys of the attempts that are being handed back unstarted.
        self._unstarted = set()

    def add(self, claimed):
        """Note the claimed Tasks that count towards a limit."""
        self._lanes |= {t.key: (t.type, t.collection) for t in claimed if t.limited}

    def hand_back(self, holding):
        """Note that a limited Task goes back to the queue, if it is unstarted."""
        if holding.key in self._lanes and not holding.start_known:
            self._unstarted.add(holding.key)

    def ends_any(self, batch):
        """Tell whether a Move of the batch ends a limited attempt."""
        return bool(self._lanes) and any(
            move.event in ENDS and (move.instance, move.attempt) in self._lanes
            for move in batch
            if isinstance(move, Move)
        )

    def recorded(self, batch):
        """Forget the attempts that these recorded Moves have ended: their places are free."""
        if not self._lanes and not self._unstarted:
            return
        for move in batch:
            if move.event in ENDS:
                self._lanes.pop((move.instance, move.attempt), None)
                self._unstarted.discard((move.instance, move.attempt))
        self._queue.put_back()

    def unstarted_lanes(self, batch):
        """Return the lanes of the unstarted attempts that these Moves hand back."""
        if not self._unstarted:
            return []
        keys = {(move.instance, move.attempt) for move in batch}
        return [self._lanes[key] for key in keys & self._unstarted]

    def reconcile(self, kept, keys=None):
        """Forget attempts that this daemon no longer holds: of all, or of ``keys`` if given."""
        gone = (self._lanes.keys() if keys is None else keys) - kept.keys()
        self._lanes = {key: lane for key, lane in self._lanes.items() if key not in gone}
        self._unstarted &= self._lanes.keys()
