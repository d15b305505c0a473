"""The attempts that the daemon holds: their events, pauses, stacks, and ends on request."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from ... import messages
from ...commands import CANCEL, PAUSE, RELEASE, RESUME, AttemptCommand
from ...conf import settings
from ...models import ASKED, Kind
from ...operations.registry import registry
from ...states import Event, State, events
from ...store.facts import Session
from ...store.values import Attempt, Message, Move, Pause, ProgressUpdate
from .. import protocol, shared_memory
from ..outcomes import cancel_grace
from ..processes import uptime
from ..protocol import Interrupt, Key, Kill
from ..shared_memory import Page
from ..stacks import Stack
from .pool import Pool, WorkerLink
from .reader import UsageMeter

if TYPE_CHECKING:
    from .core import Core, QueueState
    from .lease import Identity


# The attempts that this daemon holds: those that run and those that wait for a worker.
#
# Each event of an attempt becomes a Move, which waits until it is recorded in the database.


class Attempts:
    """The attempts that this daemon holds, and the operations on them.

    ``processes`` is the most workers at work, without the loops. If the daemon is quiet or stops,
    ``stopping`` is the reason why it starts nothing, else "". ``undecided`` are the transactional
    attempts, by key, whose worker died, and of which it is not known yet whether the worker has
    committed the end.
    """

    def __init__(self, core: "Core", processes: int = 1) -> None:
        self._core = core
        self._pool: Pool = core.pool
        self._pool.single = core.downstreams.names
        self._unrecorded = core.unrecorded
        self._counters = core.counters
        self.times = Times(core.identity)
        self.limited = LimitedAttempts(core.queue)
        self.ending = Ending(core.pool, core.page, core.tell, self.hand_back)
        self.pausing = Pausing(
            core.pool, core.page, processes, self._record_pause, self._refuse_pause, core.tell
        )
        self.stacks = Stacks(core, self)
        self.usage = UsageMeter(core.pool, core.identity, processes)
        self.stopping = ""
        self.undecided: dict[Key, Attempt] = {}

    def any(self) -> bool:
        """Tell whether this daemon holds any Task."""
        return len(self._pool) > 0

    def who(self, link: WorkerLink | None = None) -> str:
        """Return the name with which this daemon, or the worker of ``link``, signs log records."""
        name = self._core.identity.name
        if link is None:
            return name
        where = f" on {link.host}" if link.host else ""
        return f"{name} worker {link.slot}{where}"

    def asked(self, asked: AttemptCommand) -> None:
        """Obey an ask to the holder of a Task: pause, resume, cancel or release."""
        if asked.request in (PAUSE, RESUME):
            self.pausing.asked((asked.instance, asked.attempt), asked.request)
        else:
            self.ending.asked(asked)

    # Changes

    def move(
        self, attempt: Attempt, event: Event, link: WorkerLink | None = None, **facts: Any
    ) -> None:
        """Add the Move of an event of this attempt; its time is now unless ``facts`` has one."""
        own: dict[str, Any] = {"time": self.times.now(attempt), "who": self.who(link)}
        facts = own | facts
        if event == Event.START:
            attempt.began = facts["time"]
        facts["of"] = attempt
        move = Move(event, instance=attempt.instance, attempt=attempt.number, **facts)
        self._unrecorded.add(move)

    def start(self, attempt: Attempt, link: WorkerLink, at: float) -> None:
        """Record a start by itself, not together with the end."""
        attempt.start_known = True
        self.move(attempt, Event.START, link, time=self.times.at_uptime(attempt, at))

    def release(
        self, attempt: Attempt, why: str, link: WorkerLink | None = None, **facts: Any
    ) -> None:
        """Give a Task back to the queue."""
        self.move(attempt, Event.RELEASE, link, message=why, **facts)
        self._counters.released(attempt, why)

    def _record_pause(
        self, attempt: Attempt, event: Event, link: WorkerLink, at: float, message: str
    ) -> None:
        self.move(attempt, event, link, time=self.times.at(attempt, at), message=message)

    def _refuse_pause(self, attempt: Attempt, link: WorkerLink) -> None:
        text = messages.pause_refused(in_loop=link.loop is not None, host=link.host)
        message = Message(time=self.times.now(attempt), level=logging.WARNING, text=text)
        self.note(attempt, link, message)

    def note(self, attempt: Attempt, link: WorkerLink, message: Message) -> None:
        """Add a message to the log of an attempt that runs."""
        if not attempt.start_known:
            self.start(attempt, link, attempt.started)
        note = ProgressUpdate(
            instance=attempt.instance,
            attempt=attempt.number,
            who=self.who(link),
            messages=(message,),
            transactional=registry.is_transactional(attempt.type),
        )
        self._unrecorded.add(note)

    # Handing out and handing back

    def hand_out(self) -> None:
        """Hand waiting Tasks out to workers; release those that have waited too long."""
        self._pool.take_back()
        held_back = self._core.downstreams.held_back(self._pool)
        for attempt in self._pool.hand_out():
            # Record the start of a reserved Task before its worker gets it.
            attempt.start_known = True
            link, _ = self._pool.find(attempt.key)
            self.move(attempt, Event.START, link)
        if held_back:
            self._put_back(held_back)
        self.hand_back(self._pool.overstock(), messages.no_worker_free())

    def _put_back(self, held_back: Collection[Attempt]) -> None:
        """Let these Tasks wait until their downstream has heard of a refusal, if it can."""
        downstreams = self._core.downstreams
        stuck, names = downstreams.stuck(), downstreams.names
        self._pool.put_back([each for each in held_back if names[each.type] not in stuck])
        gone = [each for each in held_back if names[each.type] in stuck]
        self.hand_back(gone, messages.downstream_locked())

    def hand_back(self, attempts: Iterable[Attempt], why: str) -> None:
        """Release Tasks that were not started."""
        for attempt in attempts:
            self.limited.hand_back(attempt)
            self.release(attempt, why)

    def hand_back_unstarted(self, why: str) -> None:
        """Release all Tasks that no worker has started yet."""
        self.hand_back_waiting(why)
        for link in self._pool.links.values():
            self.hand_back(self._pool.unstarted(link), why)

    def hand_back_unplaceable(self) -> None:
        """Release the Tasks that wait for a place while their engine is away."""
        if self._core.capacity.error:
            self.hand_back_waiting(messages.engine_away())

    def hand_back_waiting(self, why: str) -> None:
        """Release the Tasks that are assigned to no worker."""
        if self._pool.count_waiting():
            self.hand_back(self._pool.take_all_waiting(), why)

    # Answers of the database

    def recorded(
        self,
        batch: Sequence[Move | ProgressUpdate],
        refused: Collection[Move | ProgressUpdate],
    ) -> None:
        """Follow up on a batch that was recorded, except for its ``refused`` entries."""
        if self.limited.ends_any(batch):
            self.limited.recorded(batch)
        for entry in refused:
            key: Any = entry.instance, entry.attempt
            concluded = self.undecided.pop(key, None)
            if concluded is not None:
                self._counters.finished(concluded)
            elif isinstance(entry, Move) or not self._may_have_concluded(entry):
                self._counters.refused(entry, self._forget(key))
        for entry in batch:
            if not isinstance(entry, Move):
                continue
            if entry.event is Event.FINISH and not self.undecided:
                continue  # nothing follows from it
            if entry in refused:
                continue
            key = entry.instance, entry.attempt
            if entry.event == Event.START:
                self._hand_out_reserved(key)
            elif key in self.undecided:
                self._counters.lost_worker(self.undecided.pop(key), entry)
            if entry.event in PUTS_BACK:
                self._core.queue.put_back()

    def _may_have_concluded(self, note: ProgressUpdate) -> bool:
        """Tell whether a worker may have committed the attempt's end before this note."""
        if self._unrecorded.is_doubtful(note):
            return True
        _, attempt = self._pool.find((note.instance, note.attempt))
        return attempt is not None and registry.is_transactional(attempt.type)

    def _hand_out_reserved(self, key: Key) -> None:
        if self.stopping:
            self.hand_back(self._pool.take_reserved(key), self.stopping)
        else:
            self._pool.release_reserved(key)

    def _forget(self, key: Key) -> Attempt | None:
        """Drop a Task that this daemon no longer holds; kill its worker if it runs the Task."""
        self._pool.take_unstarted_back(key)
        link, attempt = self._pool.drop(key)
        if link is not None:
            self.ending.forget(key)
            link.revoked[key] = attempt  # type: ignore[assignment]
            self.ending.kill(link, key, messages.task_taken_away())
        return attempt

    def reconcile(self, kept: Mapping[Key, str], keys: Set[Key] | None = None) -> None:
        """Adapt to the attempts ``kept`` that the new identity holds: their states by key.

        Forget the changes that are recorded already, and end the attempts that this daemon no
        longer holds. If ``keys`` is given, look at these attempts only.
        """
        self._unrecorded.keep(kept, keys)
        self.limited.reconcile(kept, keys)
        for attempt in list(self._pool.attempts()):
            if keys is not None and attempt.key not in keys:
                continue
            if attempt.key not in kept:
                if not attempt.concluded:
                    self._forget(attempt.key)
            elif kept[attempt.key] == State.RUNNING:
                # Its start is recorded, and only the acknowledgement got lost.
                self._hand_out_reserved(attempt.key)

    # For the daemon's row

    def workers(self) -> list[dict[str, Any]]:
        """Return dicts that describe the workers: slot, pid, Instance and its start."""
        described: list[dict[str, Any]] = []
        for slot, link in sorted(self._pool.links.items()):
            facts: dict[str, Any] = {
                "worker": slot,
                "pid": link.pid,
                "instance": None,
                "since": None,
            }
            if link.loop is not None:
                facts["loop"] = link.loop.number
                blocked_by = link.loop.blocked_by
                if blocked_by is not None and blocked_by.slot == slot:
                    facts["blocks"] = round(uptime() - blocked_by.since, 3)
            if link.is_paused:
                facts["paused"] = True
            if link.running is not None:
                started = time.time() - uptime() + link.running.started
                if link.host:
                    facts["host"] = link.host
                facts |= {
                    "instance": str(link.running.uuid),
                    "type": link.running.type,
                    "since": self._core.identity.time(started).isoformat(),
                }
            described.append(facts)
        return described


# The ends of attempts on request: cancel, release, and the stop of the daemon.
#
# An attempt is asked to end, and a cancelled one is interrupted too. If it goes on after its grace,
# its worker is killed. To cancel is to ask for the event FAIL; its reason is CANCELLED.

# An attempt that is asked to end because its daemon stops gets this long, in seconds.
STOP_GRACE = 1.0
# A cancelled attempt gets at least this long, in seconds, or its whole grace if that is shorter,
# however late the daemon reads the ask.
LEAST_GRACE = 0.25


class Ending:
    """The attempts that were asked to end. ``tell(message)`` sends to the supervisor."""

    def __init__(
        self,
        pool: Pool,
        page: Page,
        tell: Callable[[Any], None],
        hand_back: Callable[[Iterable[Attempt], str], None],
    ) -> None:
        self._pool = pool
        self._page = page
        self._tell = tell
        self._hand_back = hand_back
        self._kills: dict[Key, float] = {}

    def asked(self, asked: AttemptCommand) -> None:
        """Obey an ask to the holder of a Task: cancel or release."""
        key = asked.instance, asked.attempt
        if asked.request == CANCEL:
            self.cancel(key, messages.cancelled(asked.who), asked.age)
        elif asked.request == RELEASE:
            self._ask(key, Event.RELEASE, messages.command_sent(RELEASE), settings.RELEASE_GRACE)

    def cancel(self, key: Key, why: str, age: float = 0.0) -> None:
        """Make a running attempt end as CANCELLED; the cancel is ``age`` seconds old.

        An attempt that has not started is handed back, and the store cancels its Instance.
        """
        self._pool.take_unstarted_back(key)
        _, attempt = self._pool.find(key)
        grace = 0.0 if attempt is None else cancel_grace(attempt.type)
        self._ask(key, Event.FAIL, why, max(grace - age, min(grace, LEAST_GRACE)))

    def ask_all(self, event: Event, why: str) -> None:
        """Ask every attempt that this daemon holds to end within STOP_GRACE."""
        for attempt in list(self._pool.attempts()):
            self._ask(attempt.key, event, why, STOP_GRACE)

    def ask_unbegun(self, why: str) -> None:
        """Have a follower hand back the attempts that its engine has not begun on any host."""
        for link in self._pool.links.values():
            if link.first is not None and not link.host:
                self._ask(link.first.key, Event.RELEASE, why, settings.RELEASE_GRACE)

    def _ask(self, key: Key, event: Event, why: str, grace: float) -> None:
        waiting = self._pool.take_waiting(key)
        if waiting is not None:
            self._hand_back([waiting], why)
            return
        link, attempt = self._pool.find(key)
        if attempt is None or attempt is link.reserved:
            return  # a reserved Task will be with its worker when the ask is read again
        if not attempt.ask:
            self._page.ask(link.slot, *key)
        if attempt.ask not in (event, Event.FAIL):  # no later ask replaces a cancel
            attempt.ask, attempt.why = event, why
            # In a loop only this ends an attempt that does not ask.
            if event == Event.FAIL or link.loop is not None:
                self._tell(Interrupt(link.slot, link.pid, key))
        at = uptime() + grace
        self._kills[key] = min(self._kills.get(key, at), at)

    def forget(self, key: Key) -> None:
        """Forget the kill of an attempt that has ended."""
        self._kills.pop(key, None)

    def pause(self, longest: float) -> float:
        """Return the time until the next kill, in seconds, ``longest`` at most."""
        if not self._kills:
            return longest
        return max(0.0, min(longest, min(self._kills.values()) - uptime()))

    def kill_overdue(self) -> None:
        """Ask the supervisor to kill the attempts that have not ended within their grace."""
        for key, at in list(self._kills.items()):
            if uptime() >= at:
                del self._kills[key]
                link, attempt = self._pool.find(key)
                if attempt is not None:
                    self.kill(link, key, attempt.why)

    def kill(self, link: WorkerLink, key: Key, why: str) -> None:
        """Ask the supervisor to kill a worker if it still runs this attempt."""
        self._tell(Kill(link.slot, link.pid, key, why))


# Attempts that count towards a limit on the number of attempts at once.

# The events that send an Instance back to the queue, and those that end an attempt.
PUTS_BACK = events(lambda row: row.puts_back)
ENDS = events(lambda row: row.ends)


class LimitedAttempts:
    """The limited attempts of this daemon. When one ends, ``queue`` learns that a place is free."""

    def __init__(self, queue: "QueueState") -> None:
        self._queue = queue
        # The lane (Type and collection) of each attempt, by key, until its end is recorded.
        self._lanes: dict[tuple[int, int | None], tuple[str, str]] = {}
        # The keys of the attempts that are being handed back unstarted.
        self._unstarted: set[tuple[int, int | None]] = set()

    def add(self, claimed: Iterable[Attempt]) -> None:
        """Note the claimed Tasks that count towards a limit."""
        self._lanes |= {t.key: (t.type, t.collection) for t in claimed if t.limited}

    def hand_back(self, attempt: Attempt) -> None:
        """Note that a limited Task goes back to the queue, if it is unstarted."""
        if attempt.key in self._lanes and not attempt.start_known:
            self._unstarted.add(attempt.key)

    def ends_any(self, batch: Sequence[Move | ProgressUpdate]) -> TypeGuard[Sequence[Move]]:
        """Tell whether a Move of the batch ends a limited attempt."""
        return bool(self._lanes) and any(
            move.event in ENDS and (move.instance, move.attempt) in self._lanes
            for move in batch
            if isinstance(move, Move)
        )

    def recorded(self, batch: Iterable[Move]) -> None:
        """Forget the attempts that these recorded Moves have ended: their places are free."""
        if not self._lanes and not self._unstarted:
            return
        for move in batch:
            if move.event in ENDS:
                self._lanes.pop((move.instance, move.attempt), None)
                self._unstarted.discard((move.instance, move.attempt))
        self._queue.put_back()

    def unstarted_lanes(self, batch: Iterable[Move | ProgressUpdate]) -> list[tuple[str, str]]:
        """Return the lanes of the unstarted attempts that these Moves hand back."""
        if not self._unstarted:
            return []
        keys = {(move.instance, move.attempt) for move in batch}
        return [self._lanes[key] for key in keys & self._unstarted]

    def reconcile(self, kept: Mapping[Key, str], keys: Set[Key] | None = None) -> None:
        """Forget attempts that this daemon no longer holds: of all, or of ``keys`` if given."""
        gone = (self._lanes.keys() if keys is None else keys) - kept.keys()
        self._lanes = {key: lane for key, lane in self._lanes.items() if key not in gone}
        self._unstarted &= self._lanes.keys()


# Paused attempts, and the workers that take their place meanwhile (RFC 14's PAUSED).
#
# An attempt pauses itself, either at its next check for an ask or because its handler wants to.
# The supervisor stops the worker of a stoppable Type. A paused worker can run nothing else, so
# the supervisor starts another. The attempt goes on when the number of workers at work allows
# it: a worker that has nothing to do exits to make room.

# A dismissed worker that has not exited is dismissed again after this, in seconds.
TELL_AGAIN = 0.2


class Pausing:
    """The pauses of a dispatcher's attempts.

    ``places`` is the most workers at work. ``record(attempt, event, link, at, message)`` queues
    a Move to be recorded, and ``refuse(attempt, link)`` a message that the attempt cannot be
    paused. ``tell(message)`` sends to the supervisor.
    """

    def __init__(
        self,
        pool: Pool,
        page: Page,
        places: int,
        record: Callable[[Attempt, Event, WorkerLink, float, str], None],
        refuse: Callable[[Attempt, WorkerLink], None],
        tell: Callable[[Any], None],
    ) -> None:
        self._pool = pool
        self._page = page
        self._places = places
        self._record = record
        self._refuse = refuse
        self._tell = tell
        self._spare = 0

    def asked(self, key: Key, request: str) -> None:
        """Ask an attempt to pause or to go on, as an operator wants; called again and again."""
        link, attempt = self._pool.find(key)
        if attempt is None or attempt.started is None or attempt.ask:
            return
        wanted = request == PAUSE
        cannot = registry.is_transactional(attempt.type) or link.loop is not None or link.host
        if cannot and attempt.pause is None:
            # The asker does not know the Type: a pause would keep the transaction open, or there
            # is nothing that could pause. A handler on another host may pause by itself.
            if wanted and not attempt.is_to_pause:
                self._refuse(attempt, link)
            attempt.is_to_pause = wanted
            return
        if attempt.pause is not None:
            attempt.pause.is_wanted = wanted
        elif wanted and registry.is_stoppable(attempt.type):
            # Repeat this: the supervisor does not stop it while it writes a checkpoint.
            attempt.is_to_pause = True
            self._tell(protocol.Freeze(link.slot, link.pid, key))
        elif wanted and not attempt.is_to_pause:
            attempt.is_to_pause = True
            self._page.ask(link.slot, *key, shared_memory.PAUSE)
        elif not wanted and attempt.is_to_pause:
            attempt.is_to_pause = False
            self._page.ask(link.slot, *key, shared_memory.GO)

    def begun(
        self,
        link: WorkerLink,
        key: Key,
        at: float,
        number: int,
        message: str = "",
        *,
        is_own: bool = False,
        is_frozen: bool = False,
    ) -> None:
        """Note that an attempt has paused for the ``number``-th time.

        ``is_own``: the handler wanted the pause, and says itself when it is ready to go on.
        """
        attempt = link.assigned.get(key)
        if is_frozen and (attempt is None or attempt.pause is not None):
            # The worker was stopped after it had reported the end of the attempt, or after the
            # handler had paused by itself: then it can say when it is ready to go on.
            self._tell(protocol.Thaw(link.slot, link.pid, key))
        if attempt is None or attempt.pause is not None:
            return
        is_wanted = attempt.is_to_pause
        pause = Pause(number, uptime(), is_frozen, is_wanted=is_wanted, is_over=not is_own)
        attempt.pause, attempt.is_to_pause = pause, False
        self._record(attempt, Event.PAUSE, link, at, message)

    def ending(self, link: WorkerLink, key: Key) -> None:
        """Note that the handler of a paused attempt is ready to go on."""
        attempt = link.assigned.get(key)
        if attempt is not None and attempt.pause is not None:
            attempt.pause.is_over = True

    def thawed(self, link: WorkerLink, key: Key, at: float) -> None:
        """Note that the supervisor has let a stopped worker go on."""
        attempt = link.assigned.get(key)
        if attempt is not None and attempt.pause is not None and attempt.pause.is_frozen:
            self.over(attempt, link, at)

    def ended(self, link: WorkerLink, key: Key, at: float) -> None:
        """Note that a paused attempt has gone on."""
        attempt = link.assigned.get(key)
        if attempt is not None:
            self.over(attempt, link, at)

    def over(self, attempt: Attempt, link: WorkerLink, at: float) -> None:
        """Record that an attempt has gone on, if it was paused."""
        if attempt.pause is not None:
            attempt.paused += uptime() - attempt.pause.since
            attempt.pause = None
            # An attempt that was asked to end goes on in order to end.
            message = messages.resumed_to_end(attempt.why) if attempt.ask else ""
            self._record(attempt, Event.RESUME, link, at, message)

    def turn(self) -> None:
        """Adjust the number of workers, and let paused attempts go on; called at every turn."""
        links = self._pool.processes.links.values()
        paused = [link for link in links if link.is_paused]
        for link in paused:
            if link.running.ask and link.running.pause.is_frozen:
                self._go(link)  # a stopped attempt cannot end
        if paused or self._spare or len(links) > self._places:
            self._want_spare(len(paused))
            self._let_go_on([link for link in paused if link.is_paused])
        for link in links:
            # The worker may have been running something, and so was not killed: try again.
            if link.is_leaving and uptime() >= link.dismissed_at + TELL_AGAIN:
                self._dismiss(link)

    def _want_spare(self, paused: int) -> None:
        # The supervisor must not replace a worker that makes room.
        leaving = sum(link.is_leaving for link in self._pool.processes.links.values())
        count = max(0, min(paused, self._places) - leaving)
        if count != self._spare:
            self._spare = count
            self._tell(protocol.SpareWanted(count))

    def _let_go_on(self, paused: Collection[WorkerLink]) -> None:
        """Let the attempts that have been paused longest go on; free workers make room for them."""
        at_work = len(self._pool.processes.links) - len(paused)
        ready = [link for link in paused if link.running.pause.wants_to_go]
        ready.sort(key=lambda link: link.running.pause.since)
        places = max(0, self._places - at_work)
        for link in ready[:places]:
            self._go(link)
        if len(ready) > places or at_work > self._places:
            self._make_room()

    def _make_room(self) -> None:
        """Dismiss one worker that has nothing to do, unless another one is leaving already."""
        links = self._pool.processes.links.values()
        if not any(link.is_leaving for link in links):
            # One that is not ready yet has least to lose.
            unneeded = [link for link in links if link.is_free or link.is_starting]
            unneeded.sort(key=lambda link: not link.is_starting)
            for link in unneeded[:1]:
                link.is_leaving = True
                self._want_spare(sum(link.is_paused for link in links))
                self._dismiss(link)

    def _dismiss(self, link: WorkerLink) -> None:
        """Ask the supervisor to kill a worker, unless it runs something."""
        link.dismissed_at = uptime()
        why = messages.evicted_for_resume()
        self._tell(protocol.Kill(link.slot, link.pid, shared_memory.NOTHING, why))

    def _go(self, link: WorkerLink) -> None:
        attempt: Attempt = link.running
        attempt.pause.may_go = True
        if attempt.pause.is_frozen:
            self._tell(protocol.Thaw(link.slot, link.pid, attempt.key))
        else:
            self._page.ask(link.slot, *attempt.key, shared_memory.GO, attempt.pause.number)


# Converting times of this host's clocks to the database's clock.


class Times:
    """The converter of host times to database times. No time is before the Task's claim."""

    def __init__(self, identity: "Identity") -> None:
        self._identity = identity
        self.set()

    def set(self) -> None:
        """Measure the differences between the clocks: of the database, this host and its uptime."""
        self.clock = time.time() - uptime()
        self._database = self.clock + self._identity.offset.total_seconds()

    def at_uptime(self, attempt: Attempt, at: float) -> datetime:
        """Convert a time of the uptime clock. This is called twice for each attempt."""
        claimed: Any = attempt.time
        time = datetime.fromtimestamp(at + self._database, UTC)
        return time if time > claimed else claimed

    def at(self, attempt: Attempt, host_time: float) -> datetime:
        """Convert a time of this host's clock."""
        claimed: Any = attempt.time
        time = self._identity.time(host_time)
        return time if time > claimed else claimed

    def now(self, attempt: Attempt) -> datetime:
        return self.at(attempt, time.time())


# The stacks of attempts: which were asked for, and their records in the log.

# If no record has answered the command for a stack by then, it is obeyed again, in seconds.
AGAIN = 10.0


class Stacks:
    """The stacks of a dispatcher's attempts, which the supervisor takes.

    ``taken`` are the stacks that were asked for and are not recorded yet, each with its worker, its
    attempt, and the time on the host's clock.
    """

    def __init__(self, core: "Core", attempts: "Attempts") -> None:
        self._core = core
        self._attempts = attempts
        # By attempt: the time on the uptime clock when the supervisor was asked.
        self._asked: dict[Key, float] = {}
        self.taken: list[tuple[WorkerLink, Key, float, Stack]] = []

    def asked(self, keys: Iterable[Key]) -> None:
        """Ask the supervisor for the stacks of these attempts; called again and again.

        ``keys`` are all attempts for whose stack somebody has asked.
        """
        now = uptime()
        self._asked = {key: self._asked.get(key, 0.0) for key in keys}
        for key, at in self._asked.items():
            link, attempt = self._core.pool.find(key)
            if link is None or attempt is not link.running or (at and now < at + AGAIN):
                continue
            self._asked[key] = now
            if link.loop is not None:
                # The asker does not know the Type.
                self._refuse(attempt, link)
                continue
            self._core.tell(protocol.TakeStack(link.slot, link.pid, key))

    def _refuse(self, attempt: Attempt, link: WorkerLink) -> None:
        text = messages.stack_refused()
        message = Message(
            time=self._attempts.times.now(attempt),
            level=logging.WARNING,
            text=text,
            kind=Kind.STACK,
            detail=ASKED,
        )
        self._attempts.note(attempt, link, message)

    def take(self) -> list[tuple[WorkerLink, Key, float, Stack]]:
        """Remove and return the stacks that are to be recorded."""
        taken, self.taken = self.taken, []
        return taken

    def record(
        self,
        link: WorkerLink,
        attempt: Attempt | None,
        stack: Stack,
        *,
        at: float | None = None,
        detail: str = ASKED,
        sessions: Iterable[Session] = (),
    ) -> None:
        """Add a Note with the stack of an attempt, unless the attempt has ended."""
        if attempt is None:
            return
        attempts = self._attempts
        lines = [messages.stack(stack.resident, stack.seconds, stack.busy)]
        lines += [messages.stack_unavailable(stack.problem)] if stack.problem else []
        lines += map(messages.session, sessions)
        message = Message(
            time=attempts.times.at(attempt, time.time() if at is None else at),
            level=logging.INFO,
            text="\n".join(lines) + (f"\n\n{stack.text}" if stack.text else ""),
            kind=Kind.STACK,
            detail=detail,
        )
        attempts.note(attempt, link, message)
