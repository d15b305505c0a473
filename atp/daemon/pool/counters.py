"""Counters of finished and failed attempts, and the log lines of each."""

from ... import states
from ...states import Event, Reason
from ...store.common.incompatible import is_misfit
from ...store.facts import Lost
from .. import journal
from ..system.processes import uptime

_LOSING = states.events(lambda transition: transition.loses)


class Counters:
    """The counters since the start and since the last summary, and the log lines of attempts."""

    def __init__(self):
        self._since = uptime()
        self._lately = {"finished": 0, "failed": 0}
        self._in_all = dict(self._lately)
        # Whether an Instance has become a dead letter since dead letters were last counted.
        self.has_failures = False

    def _count(self, name, by=1):
        self._lately[name] += by
        self._in_all[name] += by

    def started(self, holding, link):
        journal.started(attempt=holding.claimed.attempt, worker=link.slot, **_names(holding))

    def ended(self, holding, move, seconds):
        """Count and log the Move that follows from a handler's end, after ``seconds``."""
        if move.event == Event.FINISH:
            self.finished(holding, seconds)
            return
        why = move.message.rstrip().rpartition("\n")[2]
        if is_misfit(move):
            journal.misfit(why=why, **_names(holding))
        elif move.event == Event.FAIL:
            self._count("failed")
            self.has_failures = True
            journal.failed(reason=move.reason.value, why=why, **_names(holding))
        elif move.event in _LOSING:
            self.expired(holding, why)
        else:
            delay = move.delay.total_seconds()
            journal.retried(why=f"{why} (in {delay:.1f} s)", **_names(holding))

    def finished(self, holding, seconds=0.0):
        """Count and log a handler that finished after ``seconds``."""
        self._count("finished")
        if journal.tells("finished"):
            journal.finished(seconds=seconds, **_names(holding))

    def expired(self, holding, why):
        """Count and log an attempt that was lost in this daemon."""
        task = holding.claimed
        budget = task.parameters.max_restarts
        stale = states.is_stale(restarts=task.restarts + 1, lost=task.lost + 1, max_restarts=budget)
        self.lost([Lost(type=task.type, uuid=task.uuid, attempt=task.attempt, stale=stale)], why)

    def lost_worker(self, holding, move):
        """Count and log the Move of an attempt whose worker died."""
        if move.event == Event.EXPIRE:
            self.expired(holding, move.message)
        elif move.event == Event.FAIL:
            self.ended(holding, move, 0.0)

    def lost(self, attempts, why):
        """Count and log attempts that were taken away; a ``stale`` one's Instance has failed."""
        for each in attempts:
            journal.expired(attempt=each.attempt, why=why, type=each.type, instance=each.uuid)
            if each.stale:
                self._count("failed")
                self.has_failures = True
                message = "attempts were lost more often than allowed"
                journal.failed(
                    reason=Reason.STALE.value, why=message, type=each.type, instance=each.uuid
                )

    def missed(self, count):
        """Count and log Instances that were not started before their ``start_before``."""
        self._count("failed", count)
        journal.missed(count=count)

    @staticmethod
    def released(holding, why):
        journal.released(attempt=holding.claimed.attempt, why=why, **_names(holding))

    @staticmethod
    def refused(entry, holding):
        """Log that an entry was refused, because this daemon no longer holds the Task."""
        names = _names(holding) if holding else {"type": "", "instance": entry.instance}
        journal.refused(event=getattr(entry, "event", "note"), attempt=entry.attempt, **names)

    def summarize(self, seconds):
        """Log the counts since the last summary, unless they are all zero."""
        if any(self._lately.values()):
            journal.summary(seconds=seconds, **self._lately)
            self._lately = dict.fromkeys(self._lately, 0)

    def tell_stopped(self):
        """Log that the daemon has stopped, and its counts since the start."""
        journal.daemon_stopped(seconds=uptime() - self._since, **self._in_all)


def _names(holding):
    return {"type": holding.type, "instance": holding.claimed.uuid}
