"""The counts of the changes that this daemon has recorded, until they are added to Statistic."""

from ...states import Event
from ...store.counts import COUNTED, Counts
from ...store.misfits import is_misfit
from ...store.values import Move
from ..system.processes import uptime

# The counts are added once in this many seconds at most, since each time is a transaction.
SEND_EVERY = 1.0
# If there is nothing to count, the position in the log up to which all is counted is written
# this often, in seconds.
MOVE_ON = 30.0


class Statistics:
    """The counts in memory; only the event loop uses them.

    If counts are lost here, because the daemon ends or takes another identity, other daemons
    count those records from the log.
    """

    def __init__(self):
        self._counts, self._sent = Counts(), None
        self._position, self._sent_at = 0, 0.0

    def restart(self, position):
        """Begin anew under another identity; others count the log records up to ``position``."""
        self._counts, self._sent = Counts(), None
        self._position = position

    def recorded(self, batch, refused):
        """Count a batch that was recorded, except for its ``refused`` entries."""
        known = dict(getattr(refused, "known", ()))
        counts = self._counts
        for entry in batch:
            if not isinstance(entry, Move) or entry.holding is None:
                continue
            if refused and entry in refused:
                continue
            if known and known.get(_key(entry), self._position + 1) <= self._position:
                continue  # the entry was recorded under an earlier identity
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
        """Return the counts to be added to Statistic now; None if they may wait."""
        rest = 0.0 if is_last else SEND_EVERY if self._counts else MOVE_ON
        if uptime() - self._sent_at < rest:
            return None
        self._sent, self._counts, self._sent_at = self._counts, Counts(), uptime()
        return self._sent

    def answered(self, is_added):
        """Forget the counts that were sent if the database has added them; else send them again."""
        if self._sent is not None and not is_added:
            self._counts.merge(self._sent)
        self._sent = None


def _waited(holding):
    claimed = holding.claimed
    return claimed.waited + (holding.began - claimed.time).total_seconds()


def _key(move):
    return move.instance, move.attempt, str(move.event)
