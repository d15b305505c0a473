"""The counts of what this daemon has recorded, until they are added to Statistic."""

from ...states import Event
from ...store.counts import COUNTED, Counts
from ...store.misfits import is_misfit
from ...store.values import Move
from ..system.processes import uptime

# They are added so often at most, in seconds: that is a transaction of its own.
SEND_EVERY = 1.0
# Where nothing happens, the position in the log up to which all is counted is written so often.
MOVE_ON = 30.0


class Statistics:
    """Counts in memory; used by the event loop alone.

    What is lost here, since the daemon ends or takes another identity, others count from
    the log.
    """

    def __init__(self):
        self._counts, self._sent = Counts(), None
        self._position, self._sent_at = 0, 0.0

    def restart(self, position):
        """Begin anew, under another identity: what is in the log by now, others count."""
        self._counts, self._sent = Counts(), None
        self._position = position

    def recorded(self, batch, refused):
        """A batch is in the database, but for what was refused."""
        known = dict(getattr(refused, "known", ()))
        counts = self._counts
        for entry in batch:
            if not isinstance(entry, Move) or entry.holding is None:
                continue
            if refused and entry in refused:
                continue
            if known and known.get(_key(entry), self._position + 1) <= self._position:
                continue  # it was written under an earlier identity
            holding = entry.holding
            type = holding.type
            if entry.event is Event.FINISH and entry.started is holding.began is not None:
                counts.add_run(type, entry.started, entry.time, _waited(holding))
                continue
            if entry.event == Event.START:
                counts.add(type, Event.START, entry.time, waited=_waited(holding))
                continue
            if entry.started is not None:
                counts.add(type, Event.START, entry.started, waited=_waited(holding))
            if entry.event in COUNTED and not is_misfit(entry):
                reason = str(entry.reason)
                counts.add(type, entry.event, entry.time, reason=reason, began=holding.began)

    def send(self, *, is_last=False):
        """Return what is to be added now; None if there is nothing, or it may wait."""
        rest = 0.0 if is_last else SEND_EVERY if self._counts else MOVE_ON
        if uptime() - self._sent_at < rest:
            return None
        self._sent, self._counts, self._sent_at = self._counts, Counts(), uptime()
        return self._sent

    def answered(self, is_added):
        """What was sent is added, or is still to be."""
        if self._sent is not None and not is_added:
            self._counts.merge(self._sent)
        self._sent = None


def _waited(holding):
    claimed = holding.claimed
    return claimed.waited + (holding.began - claimed.time).total_seconds()


def _key(move):
    return move.instance, move.attempt, str(move.event)
