"""The attempts that this daemon holds: those that run and those that wait for a worker.

Each event of an attempt becomes a Move, which waits until it is recorded in the database.
"""

import time

from ... import messages
from ...commands import PAUSE, RESUME
from ...operations.registry import registry
from ...states import Event, State
from ...store.values import Move
from ..system.processes import uptime
from .ending import Ending
from .limited import PUTS_BACK, LimitedAttempts
from .pausing import Pausing
from .stacks import Stacks
from .statistics import UsageMeter
from .times import Times


class Attempts:
    """The attempts that this daemon holds, and the operations on them.

    ``processes`` is the most workers at work. If the daemon is quiet or stops, ``stopping`` is
    the reason why it starts nothing, else "". ``undecided`` are the transactional attempts, by
    key, whose worker died, and of which it is not known yet whether the worker has committed
    the end.
    """

    def __init__(self, core, processes=1):
        self._core = core
        self._pool = core.pool
        self._pool.single = core.downstreams.names
        self._unrecorded = core.unrecorded
        self._counters = core.counters
        self.times = Times(core.identity)
        self.limited = LimitedAttempts(core.queue)
        self.ending = Ending(core.pool, core.page, core.tell, self.hand_back)
        self.pausing = Pausing(core.pool, core.page, processes, self._record_pause, core.tell)
        self.stacks = Stacks(core, self)
        self.usage = UsageMeter(core.pool, core.identity, processes)
        self.stopping = ""
        self.undecided = {}

    def any(self):
        """Tell whether this daemon holds any Task."""
        return len(self._pool) > 0

    def who(self, link=None):
        """Return the name with which this daemon, or the worker of ``link``, signs log records."""
        name = self._core.identity.name
        return f"{name} worker {link.slot}" if link else name

    def asked(self, asked):
        """Obey an ask to the holder of a Task: pause, resume, cancel or release."""
        if asked.request in (PAUSE, RESUME):
            self.pausing.asked((asked.instance, asked.attempt), asked.request)
        else:
            self.ending.asked(asked)

    # Changes

    def move(self, holding, event, link=None, **facts):
        """Add the Move of an event of this attempt; its time is now unless ``facts`` has one."""
        facts = {"time": self.times.now(holding), "who": self.who(link)} | facts
        instance, attempt = holding.key
        if event == Event.START:
            holding.began = facts["time"]
        facts["holding"] = holding
        self._unrecorded.add(Move(event=event, instance=instance, attempt=attempt, **facts))

    def start(self, holding, link, at):
        """Record a start by itself, not together with the end."""
        holding.start_known = True
        self.move(holding, Event.START, link, time=self.times.at_uptime(holding, at))

    def release(self, holding, why, link=None, **facts):
        """Give a Task back to the queue."""
        self.move(holding, Event.RELEASE, link, message=why, **facts)
        self._counters.released(holding, why)

    def _record_pause(self, holding, event, link, at, message):
        self.move(holding, event, link, time=self.times.at(holding, at), message=message)

    # Handing out and handing back

    def hand_out(self):
        """Hand waiting Tasks out to workers; release those that have waited too long."""
        self._pool.take_back()
        held_back = self._core.downstreams.held_back(self._pool)
        for holding in self._pool.hand_out():
            # Record the start of a reserved Task before its worker gets it.
            holding.start_known = True
            link, _ = self._pool.find(holding.key)
            self.move(holding, Event.START, link)
        if held_back:
            self._put_back(held_back)
        self.hand_back(self._pool.overstock(), messages.no_worker_free())

    def _put_back(self, held_back):
        """Let these Tasks wait until their downstream has heard of a refusal, if it can."""
        downstreams = self._core.downstreams
        stuck, names = downstreams.stuck(), downstreams.names
        self._pool.put_back([each for each in held_back if names[each.type] not in stuck])
        gone = [each for each in held_back if names[each.type] in stuck]
        self.hand_back(gone, messages.downstream_locked())

    def hand_back(self, holdings, why):
        """Release Tasks that were not started."""
        for holding in holdings:
            self.limited.hand_back(holding)
            self.release(holding, why)

    def hand_back_unstarted(self, why):
        """Release all Tasks that no worker has started yet."""
        self.hand_back_waiting(why)
        for link in self._pool.links.values():
            self.hand_back(self._pool.unstarted(link), why)

    def hand_back_waiting(self, why):
        """Release the Tasks that are assigned to no worker."""
        if self._pool.waiting:
            self.hand_back(self._pool.take_all_waiting(), why)

    # Answers of the database

    def recorded(self, batch, refused):
        """Follow up on a batch that was recorded, except for its ``refused`` entries."""
        if self.limited.ends_any(batch):
            self.limited.recorded(batch)
        for entry in refused:
            key = entry.instance, entry.attempt
            concluded = self.undecided.pop(key, None)
            if concluded is not None:
                self._counters.finished(concluded)
            elif isinstance(entry, Move) or not self._may_have_concluded(entry):
                self._counters.refused(entry, self._forget(key))
        for entry in batch:
            if not isinstance(entry, Move) or entry in refused:
                continue
            key = entry.instance, entry.attempt
            if entry.event == Event.START:
                self._hand_out_reserved(key)
            elif key in self.undecided:
                self._counters.lost_worker(self.undecided.pop(key), entry)
            if entry.event in PUTS_BACK:
                self._core.queue.put_back()

    def _may_have_concluded(self, note):
        """Tell whether a worker may have committed the attempt's end before this note."""
        if self._unrecorded.is_doubtful(note):
            return True
        _, holding = self._pool.find((note.instance, note.attempt))
        return holding is not None and registry.is_transactional(holding.type)

    def _hand_out_reserved(self, key):
        if self.stopping:
            self.hand_back(self._pool.take_reserved(key), self.stopping)
        else:
            self._pool.release_reserved(key)

    def _forget(self, key):
        """Drop a Task that this daemon no longer holds; kill its worker if it runs the Task."""
        self._pool.take_unstarted_back(key)
        link, holding = self._pool.drop(key)
        if link is not None:
            self.ending.forget(key)
            link.revoked[key] = holding
            self.ending.kill(link, key, messages.task_taken_away())
        return holding

    def reconcile(self, kept, keys=None):
        """Adapt to the attempts ``kept`` that the new identity holds: their states by key.

        Forget the changes that are recorded already, and end the attempts that this daemon no
        longer holds. If ``keys`` is given, look at these attempts only.
        """
        self._unrecorded.keep(kept, keys)
        self.limited.reconcile(kept, keys)
        for holding in list(self._pool.holdings()):
            if keys is not None and holding.key not in keys:
                continue
            if holding.key not in kept:
                if not holding.concluded:
                    self._forget(holding.key)
            elif kept[holding.key] == State.RUNNING:
                # Its start is recorded, and only the acknowledgement got lost.
                self._hand_out_reserved(holding.key)

    # For the daemon's row

    def workers(self):
        """Return dicts that describe the workers: slot, pid, Instance and its start."""
        described = []
        for slot, link in sorted(self._pool.links.items()):
            facts = {"worker": slot, "pid": link.pid, "instance": None, "since": None}
            if link.is_paused:
                facts["paused"] = True
            if link.running is not None:
                started = time.time() - uptime() + link.running.started
                facts |= {
                    "instance": str(link.running.claimed.uuid),
                    "type": link.running.type,
                    "since": self._core.identity.time(started).isoformat(),
                }
            described.append(facts)
        return described
