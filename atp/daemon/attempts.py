"""The attempts in this daemon's hands, and what becomes of each.

Turns what workers say, and their deaths, into changes and notes for the
ledger.
"""

import pickle
import time

from ..registry import registry
from ..states import Event, State
from ..store.values import PAUSE, RESUME, Change, Message, Note
from . import journal
from . import outcome as outcomes
from .endings import Endings
from .news import News
from .outcome import WORKERS_OWN, Kind
from .pausing import Pausing
from .pool import LOOK_AFTER
from .processes import uptime
from .tally import Tally

TAKEN_AWAY = "its Task was taken away"
# What sends an Instance back to the queue.
PUT_BACK = frozenset({Event.RELEASE, Event.EXPIRE, Event.RETRY, Event.DEFER})
# What ends an attempt.
ENDS = PUT_BACK | {Event.FINISH, Event.FAIL}


class Attempts:
    """What runs, what has ended, what was lost.

    ``news`` says what is to be looked for in the queue; ``stopping`` says why nothing
    is to be started, because the daemon is quiet or ends. ``tell(kind, …)`` speaks to
    the supervisor.
    """

    def __init__(self, pool, ledger, page, identity, tell, places=1):
        self._pool = pool
        self._ledger = ledger
        self._page = page
        self._identity = identity
        # How far this host's clock is ahead of its uptime clock.
        self._clock = time.time() - uptime()
        self.endings = Endings(pool, page, tell, self.hand_back)
        self.pausing = Pausing(pool, page, places, self._record_pause, tell)
        self.tally = Tally()
        self.news = News()
        self.stopping = ""
        # Attempts that count for a limit, until their end is recorded.
        self._limited = set()
        # Transactional attempts whose worker died, until it is known whether they concluded.
        self._undecided = {}

    def any(self):
        """Whether anything is in this daemon's hands."""
        return len(self._pool) > 0

    @property
    def unrecorded(self):
        """How much has happened that is not in the database yet."""
        return len(self._ledger)

    def add_limited(self, claimed):
        """Some of what was claimed may count for limits."""
        self._limited.update(task.key for task in claimed if task.limited)

    def frees_limited(self, batch):
        """Whether these changes end an attempt that counts for a limit."""
        return bool(self._limited) and any(
            change.event in ENDS and (change.instance, change.attempt) in self._limited
            for change in batch
            if isinstance(change, Change)
        )

    def freed_limited(self, batch):
        """They are recorded: another may be started."""
        ended = (change for change in batch if change.event in ENDS)
        self._limited -= {(change.instance, change.attempt) for change in ended}
        self.news.put_back()

    def _who(self, link=None):
        return f"{self._identity.name} worker {link.slot}" if link else self._identity.name

    def _host_time(self, holding, at):
        """A time on the uptime clock as the database would tell it."""
        return self._time(holding, at + self._clock)

    def _time(self, holding, host_time):
        """A time of this host as the database would tell it, and never before the claim."""
        time, claimed = self._identity.time(host_time), holding.claimed.time
        return time if time > claimed else claimed

    def _change(self, holding, event, link=None, **facts):
        facts = {"time": self._time(holding, time.time()), "who": self._who(link)} | facts
        instance, attempt = holding.key
        self._ledger.add(Change(event=event, instance=instance, attempt=attempt, **facts))

    def _release(self, holding, why, link=None, **facts):
        self._change(holding, Event.RELEASE, link, message=why, **facts)
        self.tally.released(holding, why)

    def heard(self, asked):
        """Do what was asked of the holder of a Task."""
        if asked.request in (PAUSE, RESUME):
            self.pausing.heard((asked.instance, asked.attempt), asked.request)
        else:
            self.endings.heard(asked)

    # What workers say

    def collect(self, link):
        """Take everything that a worker has said so far."""
        # What a handler said while it ran stands in the channel before its end
        # stands in the ring.
        until = link.ring.written
        self._clock = time.time() - uptime()
        for kind, *values in link.channel.drain():
            if kind == "retiring":
                journal.worker_retired(worker=link.slot, pid=link.pid, why=values[0])
            elif kind == "ended":
                self._ended(link, values, self._who(link))
            elif kind != "look":
                key, at, *rest = values
                getattr(self, f"_on_{kind}")(link, key, at, *rest)
        who = self._who(link)
        for record in link.ring.read(until):
            self._ended(link, pickle.loads(record), who)  # noqa: S301 (our own fork)

    def look(self, link):
        """See what a worker is running, and that it still is ours to run."""
        running = self._page.read(link.slot)
        if running is None:
            return
        if running.key in link.condemned:
            self.endings.kill(link, running.key, TAKEN_AWAY)
        holding = link.hand.get(running.key)
        if holding is None:
            return  # it has ended in this moment
        if holding.started is None:
            holding.started = running.started
            self.tally.started(holding, link)
        if not holding.start_known and uptime() - running.started >= LOOK_AFTER:
            self._start(holding, link, running.started)

    def _start(self, holding, link, at):
        """Record a start by itself, not together with the end."""
        holding.start_known = True
        self._change(holding, Event.START, link, time=self._host_time(holding, at))

    def _ended(self, link, told, who):
        """An attempt has ended; no outcome means that it finished and returned nothing."""
        instance, attempt, started, ended, outcome = told
        key = instance, attempt
        holding = self._pool.ended(link, key, ended - started)
        self.news.free()
        taken_away = link.condemned.pop(key, None)
        if holding is None:
            if taken_away is not None:
                self._ledger.doubt(key)
                self._add_end(taken_away, link, started, ended, outcome, who)
            return
        self.endings.forget(key)
        if holding.pause is not None:
            # That it was let go on may be heard of only after its end.
            self.pausing.over(holding, link, ended + self._clock)
        change = self._add_end(holding, link, started, ended, outcome, who)
        if change is not None:
            self.tally.ended(holding, change, ended - started - holding.paused)

    def _add_end(self, holding, link, started, ended, outcome, who):
        """Put the end of an attempt into the ledger; returns the change, None if it is released."""
        time = self._host_time(holding, ended)
        began = None if holding.start_known else self._host_time(holding, started)
        if outcome is None:
            instance, attempt = holding.key
            change = Change(Event.FINISH, instance, attempt, time, began, who)
            self._ledger.add(change)
            return change
        facts = {"who": who, "time": time, "started": began}
        if outcome.kind is Kind.INTERRUPTED and holding.ask == Event.RELEASE:
            self._release(holding, holding.why, link, **facts)
            return None
        if holding.ask == Event.FAIL and outcome.kind in outcomes.CUT_SHORT:
            change = outcomes.cancelled(holding.why, holding.claimed, outcome, **facts)
        else:
            change = outcomes.change(outcome, holding.claimed, **facts)
        if outcome.kind in WORKERS_OWN:
            # Its last notes may come after that, and whether it was cut off before is open.
            self._ledger.doubt(holding.key)
            if outcome.kind is Kind.GONE:
                self.tally.refused(change, holding)
                self._identity.lose()
                return None
            if outcome.kind is Kind.CONCLUDED:
                if holding.claimed.limited:
                    self.freed_limited([change])
                return change
        self._ledger.add(change)
        return change

    def _note(self, link, key, at, **facts):
        holding = link.hand.get(key) or link.condemned.get(key)
        if holding is None:
            return
        if key in link.condemned:
            self._ledger.doubt(key)
        elif not holding.start_known:
            # What an attempt says comes after its start, which is not long ago.
            running = self._page.read(link.slot)
            is_seen = running is not None and running.key == key
            self._start(holding, link, running.started if is_seen else at - self._clock)
        instance, attempt = key
        facts |= {"transactional": registry.is_transactional(holding.claimed.type)}
        self._ledger.add(Note(instance=instance, attempt=attempt, who=self._who(link), **facts))

    def _on_progress(self, link, key, at, fraction, message):
        self._note(link, key, at, progress=fraction, progress_message=message)

    def _on_log(self, link, key, at, level, text):
        if key in link.hand:
            time = self._time(link.hand[key], at)
            self._note(link, key, at, messages=(Message(time=time, level=level, text=text),))

    def _on_committed(self, link, key, at):
        """Its worker has committed its end, and may still have something to do after it."""
        holding = link.hand.get(key)
        if holding is not None:
            holding.concluded = True
            self._ledger.doubt(key)

    def _on_file(self, link, key, at, description):
        self._note(link, key, at, files=(description,))

    def _on_paused(self, link, key, at, number, message, is_own):
        self.look(link)
        if link.running is not None and not link.running.start_known:
            self._start(link.running, link, link.running.started)
        self.pausing.begun(link, key, at, number, message, is_own=is_own)

    def _on_resuming(self, link, key, at):
        self.pausing.ending(link, key)

    def _on_resumed(self, link, key, at):
        self.pausing.ended(link, key, at)

    def _record_pause(self, holding, event, link, at, message):
        self._change(holding, event, link, time=self._time(holding, at), message=message)

    # Handing out and handing back

    def start_before_handing_out(self, holding):
        """Record the start of an Instance that was lost before, before a worker gets it."""
        holding.start_known = True
        self._change(holding, Event.START)

    def hand_back(self, holdings, why):
        """Release Tasks that were not started."""
        for holding in holdings:
            self._release(holding, why)

    def hand_back_unstarted(self, why):
        """Release everything that no worker has started yet."""
        self.hand_back_waiting(why)
        for link in self._pool.links.values():
            self.hand_back(self._pool.unstarted(link), why)

    def hand_back_waiting(self, why):
        """Release what no worker has."""
        if self._pool.waiting:
            self.hand_back(self._pool.take_all_waiting(), why)

    # Deaths

    def bury(self, link, running, why, left=0):
        """A worker has died; ``running`` is the Instance and attempt in its page, or None.

        ``left`` is how many processes it had started were ended with it.
        Only what was executing is charged; the rest of its hand goes to others.
        """
        hand = [*link.hand.values()] + ([link.reserved] if link.reserved else [])
        again = []
        for holding in hand:
            if holding.key == running:
                self._lose(holding, link, why, left)
            elif holding.start_known:
                # Its start is recorded, so it cannot simply be handed to another worker.
                self._release(holding, "its worker died before it started")
            else:
                again.append(holding)
        if again:
            journal.taken_back(worker=link.slot, count=len(again))
        self._pool.put_back(again)
        self.news.free()
        if self.stopping:
            self.hand_back_unstarted(self.stopping)

    def _lose(self, holding, link, why, left):
        self.endings.forget(holding.key)
        if not holding.start_known:
            self._start(holding, link, holding.started or uptime())
        if holding.concluded:
            self.tally.finished(holding)
            return
        if registry.is_transactional(holding.claimed.type):
            # It may have committed its end: the fence will tell, before anything is charged.
            self._ledger.doubt(holding.key)
            self._undecided[holding.key] = holding
        if holding.ask == Event.RELEASE:
            self._release(holding, holding.why, link)
            return
        if holding.ask == Event.FAIL:
            self.pausing.over(holding, link, time.time())
        facts = {"time": self._time(holding, time.time()), "who": self._who(link)}
        if holding.ask == Event.FAIL:
            told = outcomes.killed(holding.why, why, holding.claimed, left)
            change = outcomes.cancelled(told, holding.claimed, **facts)
        else:
            change = outcomes.lost(why, holding.claimed, **facts)
        self._ledger.add(change)
        if holding.key not in self._undecided:
            self._tell_lost(holding, change)

    def _tell_lost(self, holding, change):
        """Tell how an attempt was taken whose worker died."""
        if change.event == Event.EXPIRE:
            self.tally.expired(holding, change.message)
        elif change.event == Event.FAIL:
            self.tally.ended(holding, change, 0.0)

    # What the database answers

    def recorded(self, batch, refused):
        """The batch is in the database, but for what was refused."""
        for entry in refused:
            key = entry.instance, entry.attempt
            concluded = self._undecided.pop(key, None)
            if concluded is not None:
                self.tally.finished(concluded)
            elif isinstance(entry, Change) or not self._may_have_concluded(entry):
                self.tally.refused(entry, self._forget(key))
        for entry in batch:
            if not isinstance(entry, Change) or entry in refused:
                continue
            key = entry.instance, entry.attempt
            if entry.event == Event.START:
                self._hand_out_reserved(key)
            elif key in self._undecided:
                self._tell_lost(self._undecided.pop(key), entry)
            if entry.event in PUT_BACK:
                self.news.put_back()

    def _may_have_concluded(self, note):
        """Whether a worker may have committed the end of the attempt before this was written."""
        if self._ledger.is_doubtful(note):
            return True
        _, holding = self._pool.find((note.instance, note.attempt))
        return holding is not None and registry.is_transactional(holding.claimed.type)

    def _hand_out_reserved(self, key):
        if self.stopping:
            self.hand_back(self._pool.take_reserved(key), self.stopping)
        else:
            self._pool.release_reserved(key)

    def _forget(self, key):
        """Let go of a Task that this daemon does not hold any more; kill it if it runs."""
        self._pool.take_unstarted_back(key)
        link, holding = self._pool.drop(key)
        if link is not None:
            self.endings.forget(key)
            link.condemned[key] = holding
            self.endings.kill(link, key, TAKEN_AWAY)
        return holding

    def reconcile(self, kept):
        """A new identity holds ``kept``: forget what is recorded, end what is not ours."""
        self._ledger.keep(kept)
        self._limited &= set(kept)
        for holding in list(self._pool.holdings()):
            if holding.key not in kept:
                if not holding.concluded:
                    self._forget(holding.key)
            elif kept[holding.key] == State.RUNNING:
                # Only the acknowledgement of its start got lost.
                self._hand_out_reserved(holding.key)

    # For the daemon's row

    def workers(self):
        """Describe the workers: pid, Instance and since when."""
        described = []
        for slot, link in sorted(self._pool.links.items()):
            facts = {"worker": slot, "pid": link.pid, "instance": None, "since": None}
            if link.is_paused:
                facts["paused"] = True
            if link.running is not None:
                started = self._identity.time(time.time() - uptime() + link.running.started)
                facts |= {
                    "instance": str(link.running.claimed.uuid),
                    "type": link.running.claimed.type,
                    "since": started.isoformat(),
                }
            described.append(facts)
        return described
