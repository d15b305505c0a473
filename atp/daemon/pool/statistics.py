"""The counts of the changes that this daemon has recorded, and the usage of its workers.

Both wait here until they are added to Statistic and Usage.
"""

import time

from ...states import Event
from ...store.common.incompatible import is_misfit
from ...store.counts import COUNTED, Counts, UsagePeriod
from ...store.values import Move
from ..system.memory import in_use
from ..system.processes import uptime

# The counts are added once in this many seconds at most, since each time is a transaction.
SEND_EVERY = 1.0
# If there is nothing to count, the position in the log up to which all is counted is written
# this often, in seconds.
MOVE_ON = 30.0


class Statistics:
    """The counts in memory; only the event loop uses them.

    If counts are lost here, because the daemon ends or takes another identity, other daemons
    count those records from the log. The usage is kept when the daemon takes another identity.
    """

    def __init__(self):
        self._counts, self._sent = Counts(), None
        self._position, self._sent_at = 0, 0.0

    def restart(self, position):
        """Begin anew under another identity; others count the log records up to ``position``."""
        usage = [*(self._sent.usage if self._sent else ()), *self._counts.usage]
        self._counts, self._sent = Counts(), None
        self._counts.usage = usage
        self._position = position

    def add_usage(self, period):
        """Keep a UsagePeriod, to be added with the counts."""
        self._counts.usage.append(period)

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
        """Return the counts to be added to the database now; None if they may wait."""
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


class UsageMeter:
    """Measures what the workers of this daemon do, from one period to the next.

    ``workers`` is the most workers at work. A paused attempt does not count as work. Only the
    event loop uses the meter.
    """

    def __init__(self, pool, identity, workers):
        self._pool = pool
        self._identity = identity
        self._workers = workers
        self._begin()

    def _begin(self):
        self._since = uptime()
        # In seconds, attempts and bytes.
        self._busy, self._ended, self._memory = 0.0, 0, 0

    def ended(self, holding, seconds):
        """Count an attempt that has ended, and had run for so many seconds without its pauses."""
        self._busy += seconds - holding.counted
        self._ended += 1

    def weigh(self):
        """Measure the memory of the workers."""
        memory = sum(in_use(link.pid) for link in self._pool.links.values())
        self._memory = max(self._memory, memory)

    def is_over(self):
        """Tell whether the minute is over in which the period began."""
        return self._minute(uptime()) > self._minute(self._since)

    def close(self):
        """End the period, and return it as a UsagePeriod; the next one begins now."""
        self.weigh()
        now = uptime()
        for link in self._pool.links.values():
            holding = link.running
            if holding is not None:
                ran = holding.run_time(now)
                self._busy += ran - holding.counted
                holding.counted = ran
        period = UsagePeriod(
            start=self._minute(self._since),
            name=self._identity.name,
            capacity_us=round(1e6 * self._workers * (now - self._since)),
            busy_us=max(0, round(1e6 * self._busy)),
            ended=self._ended,
            memory=self._memory,
        )
        self._begin()
        return period

    def _minute(self, at):
        """Return the minute, on the database's clock, of a time of the uptime clock."""
        moment = self._identity.time(time.time() - uptime() + at)
        return moment.replace(second=0, microsecond=0)
