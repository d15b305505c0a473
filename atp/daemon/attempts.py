"""The attempts in this daemon's hands, and what becomes of each.

Turns what workers say, and their deaths, into changes and notes for the
ledger.
"""

import logging
import time

from ..conf import settings
from ..states import Event, Reason, State
from ..store.base import Change, Message, Note
from . import journal, outcome
from .outcome import Kind
from .processes import uptime

# An attempt that was asked to end when a daemon stops gets this long, in seconds.
STOP_GRACE = 1.0


class Attempts:
    """What runs, what has ended, what was asked to end.

    ``tell(kind, …)`` speaks to the supervisor.
    """

    def __init__(self, pool, ledger, page, identity, tell):
        self._pool = pool
        self._ledger = ledger
        self._page = page
        self._identity = identity
        self._tell = tell
        self._freed = False
        self._kills = {}
        self._since = uptime()
        self._counts = {"finished": 0, "failed": 0}
        self._totals = {"finished": 0, "failed": 0}
        self.more_waits = False

    def take_freed(self):
        """Tell whether a worker has become free since the last call."""
        freed, self._freed = self._freed, False
        return freed

    def _who(self, link=None):
        return f"{self._identity.name} worker {link.slot}" if link else self._identity.name

    def _time(self, holding, host_time):
        """A time of this host as the database would tell it, and never before the claim."""
        return max(self._identity.time(host_time), holding.claimed.time)

    def _change(self, holding, event, link=None, **facts):
        facts.setdefault("time", self._time(holding, time.time()))
        self._ledger.add(
            Change(
                event=event,
                instance=holding.claimed.instance,
                attempt=holding.claimed.attempt,
                who=self._who(link),
                **facts,
            )
        )

    # What workers say

    def collect(self, link):
        """Take everything that a worker has said so far."""
        for kind, *values in link.ours.drain():
            getattr(self, f"_on_{kind}")(link, *values)

    def _on_retiring(self, link, why):
        journal.worker_retired(worker=link.slot, pid=link.pid, why=why)

    def _on_started(self, link, instance, attempt, at):
        holding = self._pool.started(link, instance)
        if holding is None:
            return
        journal.started(
            type=holding.claimed.type,
            instance=holding.claimed.uuid,
            attempt=attempt,
            worker=link.slot,
        )
        if not holding.start_known:
            holding.start_known = True
            self._change(holding, Event.START, link, time=self._time(holding, at))

    def _on_ended(self, link, instance, attempt, at, ended):
        holding = self._pool.ended(link, instance)
        self._freed = True
        if holding is None:
            return
        self._kills.pop(holding.key, None)
        if ended.kind is Kind.INTERRUPTED and holding.ask:
            self._change(holding, holding.ask, link, message=holding.killed)
            self._told(Event.RELEASE, holding, holding.killed)
            return
        change = outcome.change(
            ended, holding.claimed, time=self._time(holding, at), who=self._who(link)
        )
        self._ledger.add(change)
        self._tell_ended(holding, change)

    def _note(self, link, instance, attempt, **facts):
        if instance in link.hand:
            self._ledger.add(Note(instance=instance, attempt=attempt, who=self._who(link), **facts))

    def _on_progress(self, link, instance, attempt, at, fraction, message):
        self._note(link, instance, attempt, progress=fraction, progress_message=message)

    def _on_log(self, link, instance, attempt, at, level, text):
        holding = link.hand.get(instance)
        if holding is not None:
            message = Message(time=self._time(holding, at), level=level, text=text)
            self._note(link, instance, attempt, messages=(message,))

    def _on_file(self, link, instance, attempt, at, description):
        self._note(link, instance, attempt, files=(description,))

    # Handing out and handing back

    def start_before_handing_out(self, holding):
        """Record the start of an Instance that was lost before, before a worker gets it."""
        holding.start_known = True
        self._change(holding, Event.START)

    def hand_back(self, holdings, why):
        """Release Tasks that were not started."""
        for holding in holdings:
            self._change(holding, Event.RELEASE, message=why)
            self._told(Event.RELEASE, holding, why)

    def hand_back_waiting(self, why):
        """Release everything that no worker has yet."""
        waiting = list(self._pool.waiting)
        self._pool.waiting.clear()
        self.hand_back(waiting, why)

    # Asking and killing

    def ask(self, instance, attempt, event, why="release requested"):
        """Make an attempt end: taken back if it has not started, else asked, then killed."""
        self._ask(instance, attempt, event, why, settings.RELEASE_GRACE)

    def ask_all(self, event, why):
        """Make every attempt end that is in this daemon's hands, soon."""
        self.hand_back_waiting(why)
        for holding in list(self._pool.holdings()):
            self._ask(*holding.key, event, why, STOP_GRACE)

    def _ask(self, instance, attempt, event, why, grace):
        for holding in list(self._pool.waiting):
            if holding.key == (instance, attempt):
                self._pool.waiting.remove(holding)
                self.hand_back([holding], why)
                return
        for link in self._pool.links.values():
            holding = link.hand.get(instance)
            if holding is None or holding.key != (instance, attempt):
                continue
            at = uptime() + grace
            if not holding.ask:
                holding.ask, holding.killed = event, why
                self._page.ask(link.slot, instance, attempt)
            self._kills[holding.key] = min(self._kills.get(holding.key, at), at)

    def kill_overdue(self):
        """Have the supervisor kill what was asked to end and has not."""
        for key, at in list(self._kills.items()):
            if uptime() >= at:
                self._kill(key)

    def _kill(self, key):
        self._kills.pop(key, None)
        for link in self._pool.links.values():
            holding = link.hand.get(key[0])
            if holding is not None and holding.key == key:
                self._tell("kill", link.slot, link.pid, *key, holding.killed)

    # Deaths

    def bury(self, link, running, why):
        """A worker has died; ``running`` is the Instance and attempt in its page, or None.

        Only what was executing is charged; the rest of its hand goes to others.
        """
        if link.reserved is not None:
            link.hand[link.reserved.claimed.instance] = link.reserved
        unstarted = [h for h in link.hand.values() if h.key != running]
        lost = [h for h in link.hand.values() if h.key == running]
        again = [h for h in unstarted if not h.start_known]
        if again:
            journal.taken_back(worker=link.slot, count=len(again))
        self._pool.put_back(again)
        # Its start is recorded, so it cannot simply be handed to another worker.
        self.hand_back([h for h in unstarted if h.start_known], "its worker died before it started")
        for holding in lost:
            self._lose(holding, link, why)
        self._freed = True

    def _lose(self, holding, link, why):
        self._kills.pop(holding.key, None)
        if not holding.start_known:
            self._change(holding, Event.START, link)
        if holding.ask:
            self._change(holding, holding.ask, link, message=holding.killed)
            self._told(Event.RELEASE, holding, holding.killed)
            return
        self._change(holding, Event.EXPIRE, link, message=why, level=logging.WARNING)
        self._told(Event.EXPIRE, holding, why)
        # It is due again, and this daemon may be the one to claim it.
        self.more_waits = True

    # What the database answers

    def recorded(self, batch, refused):
        """The batch is in the database, but for what was refused."""
        for entry in refused:
            self._refused(entry)
        for entry in batch:
            if isinstance(entry, Change):
                if entry.event == Event.START and entry not in refused:
                    self._pool.release_reserved((entry.instance, entry.attempt))
                elif entry.event in (Event.RELEASE, Event.EXPIRE, Event.RETRY):
                    self.more_waits = True

    def _refused(self, entry):
        holding = self._forget((entry.instance, entry.attempt))
        journal.refused(
            event=getattr(entry, "event", "note"),
            type=holding.claimed.type if holding else "",
            instance=holding.claimed.uuid if holding else entry.instance,
            attempt=entry.attempt,
        )

    def _forget(self, key):
        """Let go of a Task that this daemon does not hold any more; kill it if it runs."""
        for holding in list(self._pool.waiting):
            if holding.key == key:
                self._pool.waiting.remove(holding)
                return holding
        for link in self._pool.links.values():
            if link.reserved is not None and link.reserved.key == key:
                holding, link.reserved = link.reserved, None
                return holding
            holding = link.hand.get(key[0])
            if holding is not None and holding.key == key:
                self._tell("kill", link.slot, link.pid, *key, "its Task was taken away")
                del link.hand[key[0]]
                return holding
        return None

    def isolate(self, error):
        """A batch cannot be written, for a reason that lies in it: find the entry, drop it.

        The batch waits first in the ledger again. Its first entry is written
        alone from now on, and given up if it is the one.
        """
        if self._ledger.limit > 1:
            self._ledger.limit = 1
            return
        entry = self._ledger.drop_first()
        self._ledger.limit = None
        journal.bad_inputs(type="", instance=entry.instance, why=f"cannot be recorded: {error}")
        if isinstance(entry, Change) and entry.event == Event.FINISH:
            self._ledger.put_first(
                Change(
                    event=Event.FAIL,
                    instance=entry.instance,
                    attempt=entry.attempt,
                    who=entry.who,
                    reason=Reason.ERROR,
                    level=logging.ERROR,
                    message=f"the response cannot be stored: {error}",
                )
            )

    def reconcile(self, kept):
        """A new identity holds ``kept``: forget what is recorded, end what is not ours."""
        for key in self._ledger.keep(kept):
            journal.refused(event="result", type="", instance=key[0], attempt=key[1])
        for holding in list(self._pool.holdings()):
            if holding.key not in kept:
                self._forget(holding.key)
            elif kept[holding.key] == State.RUNNING:
                # Only the acknowledgement of its start got lost.
                self._pool.release_reserved(holding.key)

    # For the log and the daemon's row

    def workers(self):
        """Describe the workers for the daemon's row."""
        described = []
        for slot, link in sorted(self._pool.links.items()):
            facts = {"worker": slot, "pid": link.pid, "instance": None, "since": None}
            if link.running is not None:
                started = self._identity.time(time.time() - uptime() + link.running.started)
                facts |= {
                    "instance": str(link.running.claimed.uuid),
                    "type": link.running.claimed.type,
                    "since": started.isoformat(),
                }
            described.append(facts)
        return described

    def _count(self, name):
        self._counts[name] += 1
        self._totals[name] += 1

    def _tell_ended(self, holding, change):
        facts = {"type": holding.claimed.type, "instance": holding.claimed.uuid}
        why = change.message.rstrip().rpartition("\n")[2]
        if change.event == Event.FINISH:
            self._count("finished")
            seconds = uptime() - (holding.started or uptime())
            journal.finished(seconds=seconds, **facts)
        elif change.event == Event.RETRY:
            journal.retried(why=f"{why} (in {change.delay.total_seconds():.1f} s)", **facts)
        else:
            self._count("failed")
            journal.failed(reason=change.reason.value, why=why, **facts)

    @staticmethod
    def _told(event, holding, why):
        emit = {Event.EXPIRE: journal.expired, Event.RELEASE: journal.released}[event]
        emit(
            type=holding.claimed.type,
            instance=holding.claimed.uuid,
            attempt=holding.claimed.attempt,
            why=why,
        )

    def summarize(self, seconds):
        """Say what was done lately, if anything was."""
        if any(self._counts.values()):
            journal.summary(seconds=seconds, **self._counts)
            self._counts = dict.fromkeys(self._counts, 0)

    def tell_stopped(self):
        """Say that the daemon has stopped, and what it did in all."""
        journal.daemon_stopped(seconds=uptime() - self._since, **self._totals)
