"""What the daemon says about its attempts, and how many there were."""

from .. import states
from ..states import Event, Reason
from ..store.values import Lost
from . import journal
from .processes import uptime


class Tally:
    """Counts since the start and since the last summary, and the lines of the log."""

    def __init__(self):
        self._since = uptime()
        self._lately = {"finished": 0, "failed": 0}
        self._in_all = dict(self._lately)

    def _count(self, name, by=1):
        self._lately[name] += by
        self._in_all[name] += by

    def started(self, holding, link):
        journal.started(attempt=holding.claimed.attempt, worker=link.slot, **_names(holding))

    def ended(self, holding, change, seconds):
        """Tell how a handler's end was taken, after so many seconds."""
        if change.event == Event.FINISH:
            self.finished(holding, seconds)
            return
        why = change.message.rstrip().rpartition("\n")[2]
        if change.event in (Event.RETRY, Event.DEFER):
            delay = change.delay.total_seconds()
            journal.retried(why=f"{why} (in {delay:.1f} s)", **_names(holding))
        elif change.event == Event.EXPIRE:
            self.expired(holding, why)
        else:
            self._count("failed")
            journal.failed(reason=change.reason.value, why=why, **_names(holding))

    def finished(self, holding, seconds=0.0):
        """A handler finished after so many seconds."""
        self._count("finished")
        if journal.tells("finished"):
            journal.finished(seconds=seconds, **_names(holding))

    def expired(self, holding, why):
        """An attempt was lost here."""
        task = holding.claimed
        budget = task.parameters.max_restarts
        stale = states.is_stale(restarts=task.restarts + 1, lost=task.lost + 1, max_restarts=budget)
        self.lost([Lost(type=task.type, uuid=task.uuid, attempt=task.attempt, stale=stale)], why)

    def lost(self, attempts, why):
        """Attempts were taken away; some of their Instances were given up with it."""
        for each in attempts:
            journal.expired(attempt=each.attempt, why=why, type=each.type, instance=each.uuid)
            if each.stale:
                self._count("failed")
                told = "attempts were lost more often than allowed"
                journal.failed(
                    reason=Reason.STALE.value, why=told, type=each.type, instance=each.uuid
                )

    def missed(self, count):
        """Instances were not started in time."""
        self._count("failed", count)
        journal.missed(count=count)

    @staticmethod
    def released(holding, why):
        journal.released(attempt=holding.claimed.attempt, why=why, **_names(holding))

    @staticmethod
    def refused(entry, holding):
        """Tell that something was not written, because the Task is no longer held."""
        names = _names(holding) if holding else {"type": "", "instance": entry.instance}
        journal.refused(event=getattr(entry, "event", "note"), attempt=entry.attempt, **names)

    def summarize(self, seconds):
        """Say what was done lately, if anything was."""
        if any(self._lately.values()):
            journal.summary(seconds=seconds, **self._lately)
            self._lately = dict.fromkeys(self._lately, 0)

    def tell_stopped(self):
        """Say that the daemon has stopped, and what it did in all."""
        journal.daemon_stopped(seconds=uptime() - self._since, **self._in_all)


def _names(holding):
    return {"type": holding.claimed.type, "instance": holding.claimed.uuid}
