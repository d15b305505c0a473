"""The follower: the process of a daemon that has an engine run its attempts, and follows them.

To the dispatcher, each of its places is a worker. It holds the engine's library, and no database.
"""

import logging
import os
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .. import messages
from ..conf import settings
from ..executors.base import Cluster, EngineAway, Executor
from ..executors.ticket import (
    UNSTARTED,
    Asking,
    Done,
    End,
    Go,
    Gone,
    Hello,
    Key,
    Leave,
    MayI,
    No,
    Over,
    Said,
    Then,
    Ticket,
)
from ..executors.wire import Cut, Forged, Wire
from ..operations.registry import registry
from ..placement import described
from ..store.values import Attempt
from ..text import did_you_mean
from . import log, protocol
from .outcomes import Kind, Outcome
from .processes import uptime
from .protocol import Channel, Closed, Ended, Inherited, Look, packed_end, unpacked
from .shared_memory import NEVER, NOTHING, Page, Tokens

# The longest turn of the loop, in seconds.
TURN = 0.05
# A ticket that the engine gives back without running it is submitted again after ever longer
# pauses, TRIES times at most; then its attempt counts as lost.
TRIES, PAUSE = 6, 0.5
# A handler that has passed its time-out is killed by its keeper. If the keeper does not report
# that, the place is given up SLACK seconds later.
SLACK = 10.0
# In seconds: how often the follower looks for an engine that is away, and how often it asks one
# that is there what it has. Without an answer for ANSWERS_WITHIN, the engine counts as away.
LOOK_EVERY, ASK_EVERY, ANSWERS_WITHIN = 1.0, 5.0, 15.0
# If the engine answers but takes no tickets, it is looked for after ever longer pauses up to this.
LONGEST_PAUSE = 60.0
# An attempt is dead this long after its leave has run out, at the latest, in seconds.
KILL_WITHIN = 2.0
# In seconds: the daemon drops a connection that has sent no signed message by then.
GREET_WITHIN = 10.0
# The largest number of such connections at a time.
MOST_STRANGERS = 64
# What an engine runs for a ticket takes further attempts for HOLD seconds, without asking the
# engine. Then other users of the engine get their turn. Between two attempts it waits for KEEP
# seconds.
HOLD, KEEP = 5.0, 0.1
# The most bytes of an end that go through the ring.
MOST_IN_RING = 16 * 1024


@dataclass
class Place:
    """A place for one attempt at a time: a slot of the page, and what a worker of it would have."""

    slot: int
    channel: Channel
    tokens: Tokens
    waiting: deque[Attempt] = field(default_factory=deque)
    outbox: deque[object] = field(default_factory=deque)
    job: "Job | None" = None
    kept: "Kept | None" = None
    is_closed: bool = False


@dataclass(frozen=True)
class Kept:
    """What the engine runs for a place between two attempts: the keeper waits for the next.

    ``over`` is the end of the last attempt; the next has to take the same ``resources``. The engine
    runs it ``since`` then, and gets it back at ``until``.
    """

    wire: Wire
    over: Over
    since: float
    resources: dict[str, int]
    until: float


@dataclass
class Job:
    """An attempt that the engine has. ``wire`` leads to its keeper once it has started."""

    place: Place
    attempt: Attempt
    ticket: Ticket
    handle: Any = None
    tries: int = 0
    due: float | None = None
    started: float | None = None
    leave_until: float = 0.0
    wire: Wire | None = None
    # Since when the engine runs what it was given for this attempt or for earlier ones.
    held_since: float = 0.0
    is_asked: bool = False
    # The number of the last message of the attempt.
    heard: int = 0
    # The reason and the cause with which its place ends, if that has begun.
    ending: tuple[str, str] | None = None

    @property
    def key(self) -> Key:
        return self.ticket.key

    def hear(self, number: int) -> int | None:
        """Note the number of a message; return how many before it were lost.

        Returns None if it was heard before: after a cut, messages are said again.
        """
        lost = number - self.heard - 1
        if lost < 0:
            return None
        self.heard = number
        return lost


class Engine:
    """The calls of an executor, made one after the other by a thread.

    An engine may take long to answer; the follower must give leave meanwhile. ``wake`` is called
    when there are answers.
    """

    def __init__(self, executor: Executor, wake: Callable[[], object]) -> None:
        self.executor = executor
        self._wake = wake
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], object]]]
        self._calls = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._begun: float | None = None
        threading.Thread(target=self._run, name="atp-engine", daemon=True).start()

    @property
    def is_hanging(self) -> bool:
        """Whether a call has taken too long by now."""
        begun = self._begun
        return begun is not None and uptime() - begun > ANSWERS_WITHIN

    def call(self, function: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Have the thread call a function; ``then`` gets what it returns, or its EngineAway."""
        self._calls.put((function, then))

    def tell(self, answer: Callable[[], object]) -> None:
        """Have :meth:`answer` call a function; may be used in any thread."""
        self._answers.put(answer)
        self._wake()

    def answer(self) -> None:
        """Call what waits for the answers that have come."""
        while not self._answers.empty():
            self._answers.get()()

    def _run(self) -> None:
        while True:
            function, then = self._calls.get()
            self._begun = uptime()
            try:
                found = function()
            except EngineAway as error:
                found = error
            except Exception as error:
                # The library is missing or broken, or raises what it does not document.
                found = EngineAway(f"{type(error).__name__}: {error}")
            self._begun = None
            self.tell(partial(then, found))


class Follower:
    """Follows the attempts of one daemon. ``control`` is the channel to the supervisor."""

    def __init__(self, control: Channel, inherited: Inherited, executor: Executor) -> None:
        self._control = control
        self._page: Page = inherited.page
        self._executor = executor
        self._places: dict[int, Place] = {}
        self._jobs: dict[Key, Job] = {}
        self._wires: dict[int, Wire] = {}
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._engine = Engine(executor, self._wake)
        # The connections on which nothing signed has come yet, and until when it has to.
        self._strangers: dict[int, float] = {}
        self._listener: socket.socket | None = None
        # The state of the engine that was shown last, and when to ask for it again.
        self._state = protocol.EngineState("it was not looked for yet")
        self._is_away = True
        self._ask_at: float | None = 0.0
        # Why the engine has given back a ticket, the last time that this was logged.
        self._refusal = ""
        # The pause after the engine has taken no ticket, in seconds.
        self._pause = LOOK_EVERY
        # What each keeper has said of itself, by connection; the Types that were warned of.
        self._hellos: dict[Wire, Hello] = {}
        self._warned: set[str] = set()

    def run(self) -> None:
        """Run until the supervisor is gone."""
        while True:
            self._ask_engine()
            self._turn()

    # The engine

    def _ask_engine(self) -> None:
        """Look for the engine, or ask it what it has, if that is due."""
        if self._ask_at is not None and uptime() >= self._ask_at:
            self._ask_at = None
            self._engine.call(self._open if self._is_away else self._executor.cluster, self._said)
        elif self._engine.is_hanging:
            self._away("it does not answer")

    def _open(self) -> tuple[str, Cluster]:
        """Connect to the engine; return the address of this host, and what the engine has."""
        self._executor.open()
        own = self._executor.options.get("LISTEN") or self._executor.address()
        return own, self._executor.cluster()

    def _said(self, found: tuple[str, Cluster] | Cluster | EngineAway) -> None:
        """Note that the engine is away, or is back, or what it has."""
        if isinstance(found, EngineAway):
            self._ask_at = uptime() + LOOK_EVERY
            self._away(str(found))
            return
        self._ask_at = uptime() + ASK_EVERY
        if not isinstance(found, Cluster):
            host, found = found
            try:
                self._listen(host)
            except OSError as error:
                self._away(f"{host} is no address of this host: {error}")
                return
            self._is_away = False
        if not self._is_away:
            if not found.hosts or found.room <= self._taken():
                # Something waits for it to have more.
                self._ask_at = uptime() + LOOK_EVERY
            facts = found.address, found.hosts, found.places, found.room, found.resources
            self._tell_state(protocol.EngineState("", *facts, self._lacking(found)))

    def _taken(self) -> int:
        """Return the number of places in the cluster that this daemon has taken."""
        return sum(each.job is not None or each.kept is not None for each in self._places.values())

    def _listen(self, host: str) -> None:
        if self._listener is None:
            self._listener = socket.create_server((host, 0))
            self._listener.setblocking(False)
            self._address = host, self._listener.getsockname()[1]
            log.following(executor=self._executor.name, host=host, port=self._address[1])

    def _lacking(self, cluster: Cluster) -> dict[str, str]:
        """Return what an engine that has hosts lacks for Types, in words, by Type."""
        if not cluster.hosts or cluster.largest is None:
            return {}
        lacks: dict[str, str] = {}
        for declared in registry:
            if declared.executor != self._executor.name:
                continue
            missing = {
                name: amount
                for name, amount in declared.resources
                if cluster.largest.get(name, 0) < amount
            }
            unknown = next((name for name in missing if name not in cluster.resources), None)
            near = did_you_mean(unknown, cluster.resources) if unknown else ""
            if missing:
                lacks[declared.identifier] = f"{described(missing)}.{near}"
        return lacks

    def _away(self, error: str) -> None:
        """Give up all places that run nothing: the daemon claims nothing until it is back."""
        self._is_away = True
        if not self._state.error or self._state.error != error:
            log.engine_away(executor=self._executor.name, error=error)
        self._tell_state(protocol.EngineState(error))
        for place in list(self._places.values()):
            if place.job is None:
                self._place_over(place, error, "engine")

    def _tell_state(self, state: protocol.EngineState) -> None:
        if state != self._state:
            self._state = state
            self._control.send(state)

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except BlockingIOError:
            pass  # it is awake

    def _turn(self) -> None:
        poll = select.poll()
        for source in (self._control, self._listener, self._woken):
            if source is not None:
                poll.register(source.fileno(), select.POLLIN)
        for place in self._places.values():
            if not place.is_closed:
                poll.register(place.channel.fileno(), select.POLLIN)
        for wire in self._wires.values():
            poll.register(wire.fileno(), select.POLLIN | (select.POLLOUT if wire.waits else 0))
        ready = {descriptor for descriptor, _ in poll.poll(1000 * TURN)}
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        if self._control.fileno() in ready:
            self._hear_control()
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)
        for number, wire in list(self._wires.items()):
            if number in ready:
                self._hear(number, wire)
        for place in list(self._places.values()):
            if place.channel.fileno() in ready:
                self._hear_place(place)
            self._flush(place)
        self._engine.answer()
        self._look_after()

    # The supervisor

    def _hear_control(self) -> None:
        while True:
            try:
                message, descriptors = self._control.receive(wait=False)
            except BlockingIOError:
                return
            match message:
                case protocol.PlaceOpened():
                    channel, taking = descriptors
                    place = Place(message.slot, Channel.from_descriptor(channel), Tokens(taking))
                    self._places[message.slot] = place
                    self._tell(place, Look())
                case protocol.EndPlace(slot=slot, key=key):
                    place = self._places.get(slot)
                    if place is None:
                        continue  # it has ended, and its end was reported
                    if place.job is None and key == NOTHING:
                        self._place_over(place, message.why, message.cause)
                    elif place.job is not None and key in (NOTHING, place.job.key):
                        self._end(place.job, message.why, message.cause)

    def _place_over(self, place: Place, how: str, cause: str) -> None:
        """Report to the supervisor that a place is dead: nothing of its attempt is left."""
        job, place.job = place.job, None
        if job is not None:
            self._jobs.pop(job.key, None)
        self._forget(place)
        self._control.send(protocol.PlaceOver(place.slot, how, cause))

    def _forget(self, place: Place) -> None:
        self._let_go(place)
        del self._places[place.slot]
        place.channel.close()
        os.close(place.tokens.taking)

    # The dispatcher, at each place

    def _hear_place(self, place: Place) -> None:
        try:
            while True:
                tasks, _ = place.channel.receive(wait=False)
                place.waiting.extend(unpacked(tasks))
        except BlockingIOError:
            pass
        except Closed:
            place.is_closed = True  # the dispatcher has died, and the supervisor will report it
            return
        self._next(place)

    def _next(self, place: Place) -> None:
        """Begin with the next attempt of a place, if it has one and runs none."""
        attempt = self._take(place) if place.job is None else None
        if attempt is None:
            return
        kept, leave = place.kept, self._leave()
        if kept is not None and kept.resources == _resources(attempt) and leave > 0:
            job = self._begin(place, attempt)
            place.kept, job.held_since = None, kept.since
            go = self._go(job, kept.wire, leave, kept.over.at)
            self._say(kept.wire, Then(kept.over.key, go))
        else:
            self._let_go(place)
            self._tell(place, protocol.RunsOn(""))
            self._submit(self._begin(place, attempt))

    def _let_go(self, place: Place) -> None:
        """Have a keeper end what the engine runs for a place that has no attempt now."""
        kept, place.kept = place.kept, None
        if kept is not None:
            self._say(kept.wire, Done(kept.over.key))

    def _take(self, place: Place) -> Attempt | None:
        """Return the next attempt of a place, unless the dispatcher has taken it back."""
        while place.waiting:
            attempt = place.waiting.popleft()
            if place.tokens.take(attempt.serial):
                return attempt
        return None

    def _begin(self, place: Place, attempt: Attempt) -> Job:
        ticket = Ticket(*self._address, *attempt.key, attempt.type)
        place.job = job = self._jobs[attempt.key] = Job(place, attempt, ticket)
        self._page.give_leave(place.slot, 0.0)
        self._enter(job, NEVER)
        return job

    def _enter(self, job: Job, deadline: float) -> None:
        timeout = job.attempt.timeout
        seconds = NEVER if timeout is None else timeout.total_seconds()
        facts = (deadline, uptime(), 0, 0, seconds, job.attempt.uuid_text.encode())
        self._page.enter(job.place.slot, *job.key, *facts)

    def _submit(self, job: Job) -> None:
        job.due, job.tries = None, job.tries + 1
        ended = partial(self._on_ended, job.key)
        submit = partial(self._executor.submit, job.ticket.signed(), _resources(job.attempt), ended)
        self._engine.call(submit, partial(self._submitted, job))

    def _submitted(self, job: Job, handle: Any) -> None:
        if isinstance(handle, EngineAway):
            if self._is_wanted(job) and job.started is None:
                # It has not started: its Task goes back to the queue.
                self._page.leave(job.place.slot)
                self._place_over(job.place, str(handle), "engine")
            self._ask_at = uptime() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._away(str(handle))
        elif self._is_wanted(job):
            self._pause = LOOK_EVERY
            job.handle = handle
        else:
            self._cancel(handle)

    def _is_wanted(self, job: Job) -> bool:
        return self._jobs.get(job.key) is job

    def _cancel(self, handle: Any) -> None:
        """Have the engine forget a ticket; without a handle, :meth:`_submitted` does."""
        if handle is not None:
            self._engine.call(partial(self._executor.cancel, handle), lambda _: None)

    def _on_ended(self, key: Key, error: str) -> None:
        """Note that the engine is done with a ticket; called in any of its threads."""
        self._engine.tell(partial(self._on_engine, key, error))

    def _on_engine(self, key: Key, error: str) -> None:
        job = self._jobs.get(key)
        if job is None or job.started is not None:
            return  # its leave decides, and its keeper may still report
        if job.ending is not None:
            self._place_over(job.place, *job.ending)
        else:
            if error and error != self._refusal:
                self._refusal = error
                facts = {"executor": self._executor.name, "type": job.attempt.type}
                log.ticket_refused(error=error, **facts)
            self._again(job, error)

    def _again(self, job: Job, error: str = "") -> None:
        """Submit an attempt again that has not begun."""
        if job.tries >= TRIES:
            self._place_over(job.place, error or "the engine has not run it", "engine")
            return
        job.started, job.wire, job.leave_until = None, None, 0.0
        self._page.give_leave(job.place.slot, 0.0)
        job.due = uptime() + PAUSE * 2 ** max(0, job.tries - 1)

    # Keepers

    def _accept(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        if len(self._strangers) >= MOST_STRANGERS:
            first = next(iter(self._strangers))
            self._drop(first, self._wires[first])
        number = link.fileno()
        self._wires[number] = Wire(link, is_server=True)
        self._strangers[number] = uptime() + GREET_WITHIN

    def _hear(self, number: int, wire: Wire) -> None:
        try:
            for message in wire.receive():
                self._strangers.pop(number, None)
                if not isinstance(message, Hello) and wire not in self._hellos:
                    raise Forged("it has not introduced itself")
                self._on_message(wire, message)
                if self._wires.get(number) is not wire:
                    return  # an answer could not be sent
            wire.flush()
        except Forged as error:
            log.message_forged(error=error)
            self._drop(number, wire)
        except Cut:
            self._drop(number, wire)

    def _drop(self, number: int, wire: Wire) -> None:
        self._wires.pop(number, None)
        self._strangers.pop(number, None)
        self._hellos.pop(wire, None)
        wire.close()
        for place in self._places.values():
            if place.kept is not None and place.kept.wire is wire:
                place.kept = None
        for job in self._jobs.values():
            if job.wire is wire:
                job.wire = None

    def _say(self, wire: Wire | None, message: object) -> None:
        if wire is not None:
            try:
                wire.send(message)
            except Cut:
                self._drop(wire.fileno(), wire)

    def _on_message(self, wire: Wire, message: Any) -> None:  # noqa: PLR0912
        match message:
            case Hello():
                self._hellos[wire] = message
                for key in message.running:
                    job = self._jobs.get(key)
                    if job is None or job.started is None:
                        self._say(wire, No(key, "the daemon does not know it"))
                    else:
                        job.wire = wire
                        if job.ending is not None or job.is_asked:
                            self._say(wire, End(key, NEVER if job.ending is None else 0.0))
            case MayI():
                self._may_i(wire, message)
            case Asking():
                known = tuple(key for key in message.keys if key in self._jobs)
                self._give_leave(wire, known, message.at)
                for key in message.keys:
                    if key not in self._jobs:
                        self._say(wire, No(key, "the daemon does not know it"))
            case Said():
                job = self._jobs.get(message.key)
                if job is not None:
                    self._said_by(job, message)
            case Over():
                self._over(wire, message)
            case Gone():
                self._say(wire, Done(message.key))
                job = self._jobs.get(message.key)
                if job is not None and message.cause == UNSTARTED and job.ending is None:
                    self._again(job)
                elif job is not None:
                    how, cause = job.ending or (message.how, message.cause)
                    self._place_over(job.place, how, cause)

    def _said_by(self, job: Job, said: Said) -> None:
        """Pass on what an attempt has said, and what of it was lost while the link was cut."""
        lost, at = job.hear(said.number), time.time() - said.age
        if lost is None:
            return
        if lost:
            key, type = job.key, job.attempt.type
            log.messages_lost(type=type, instance=job.attempt.uuid_text, attempt=key[1], count=lost)
            line = protocol.Logged(key, at, logging.WARNING, messages.messages_lost(lost))
            self._tell(job.place, line)
        message = said.message
        self._tell(job.place, message._replace(at=at) if "at" in message._fields else message)

    def _may_i(self, wire: Wire, asked: MayI) -> None:
        """Let an attempt start once: an engine may run a ticket a second time."""
        job = self._jobs.get(asked.key)
        leave = self._leave()
        if job is None or job.started is not None or job.ending is not None or leave <= 0:
            self._say(wire, No(asked.key, "it was started before, or is no longer wanted"))
            return
        job.held_since = uptime()
        self._tell(job.place, protocol.RunsOn(self._hellos[wire].host))
        self._say(wire, self._go(job, wire, leave, asked.at))

    def _go(self, job: Job, wire: Wire, leave: float, asked: float) -> Go:
        """Note that an attempt starts, and return the message for its keeper."""
        job.started, job.wire = uptime(), wire
        self._compare_release(job, wire)
        timeout = job.attempt.timeout
        deadline = NEVER if timeout is None else uptime() + timeout.total_seconds() + SLACK
        self._enter(job, deadline)
        self._lives(job, leave)
        return Go(job.key, job.attempt, leave, asked)

    def _compare_release(self, job: Job, wire: Wire) -> None:
        hello, type = self._hellos.get(wire), job.attempt.type
        if hello is None:
            return  # it has just been dropped
        if hello.release != settings.RELEASE and type not in self._warned:
            self._warned.add(type)
            facts = {"host": hello.host, "there": hello.release or "unset"}
            log.release_differs(type=type, own=settings.RELEASE or "unset", **facts)

    def _leave(self) -> float:
        """Return for how many seconds an attempt may live now, as far as the lease goes."""
        return min(self._page.lease_until - uptime(), settings.KILL_AFTER)

    def _lives(self, job: Job, leave: float) -> None:
        """Note that the attempt may live for ``leave`` seconds; a keeper then has to kill it.

        If this process dies, the supervisor waits until then.
        """
        job.leave_until = uptime() + leave + KILL_WITHIN
        self._page.give_leave(job.place.slot, job.leave_until)

    def _give_leave(self, wire: Wire, keys: tuple[Key, ...], asked: float) -> None:
        leave = self._leave()
        wanted = [self._jobs[key] for key in keys if self._jobs[key].ending is None]
        if leave > 0 and wanted:
            for job in wanted:
                self._lives(job, leave)
            keys, heard = zip(*((job.key, job.heard) for job in wanted), strict=True)
            self._say(wire, Leave(keys, heard, leave, asked))

    def _over(self, wire: Wire, over: Over) -> None:
        job = self._jobs.pop(over.key, None)
        if job is None:
            self._say(wire, Done(over.key))
            return
        place = job.place
        ended = uptime() - over.age
        end = (*over.key, ended - over.seconds, ended, over.outcome)
        record = packed_end(*end)
        if len(record) > MOST_IN_RING or not self._page.ring(place.slot).write(record):
            self._tell(place, Ended(*end))
        self._tell(place, Look())
        self._page.leave(place.slot)
        place.job = None
        if job.ending is not None:
            self._say(wire, Done(over.key))
            self._place_over(place, *job.ending)
            return
        if uptime() - job.held_since < HOLD:
            place.kept = Kept(wire, over, job.held_since, _resources(job.attempt), uptime() + KEEP)
        else:
            self._say(wire, Done(over.key))
        self._next(place)

    def _tell(self, place: Place, message: object) -> None:
        """Send a message to the dispatcher, or keep it until that reads."""
        place.outbox.append(message)
        self._flush(place)

    def _flush(self, place: Place) -> None:
        while place.outbox:
            try:
                place.channel.send(place.outbox[0], wait=False)
            except (BlockingIOError, Closed):
                return
            place.outbox.popleft()

    # Ends

    def _end(self, job: Job, why: str, cause: str) -> None:
        """End an attempt at once, and then its place."""
        if job.ending is not None:
            return
        job.ending = why, cause
        if job.started is None:
            self._cancel(job.handle)
            self._place_over(job.place, why, cause)
        else:
            self._say(job.wire, End(job.key, 0.0))

    def _look_after(self) -> None:
        """Do what is due, and give up the places whose attempts have no leave any more."""
        now = uptime()
        for number, until in list(self._strangers.items()):
            if now >= until:
                self._drop(number, self._wires[number])
        for place in self._places.values():
            if place.kept is not None and now >= place.kept.until:
                self._let_go(place)
        for job in list(self._jobs.values()):
            if job.due is not None and now >= job.due:
                self._submit(job)
            if not job.is_asked and self._page.is_asked(job.place.slot, *job.key):
                job.is_asked = True
                if job.started is None:
                    self._hand_back(job)
                    continue
                self._say(job.wire, End(job.key, NEVER))
            if job.started is not None and now >= job.leave_until:
                how, cause = job.ending or (messages.leave_over(), "leave")
                self._place_over(job.place, how, cause)

    def _hand_back(self, job: Job) -> None:
        """Report an attempt as interrupted that the engine has not started."""
        self._cancel(job.handle)
        outcome = Outcome(Kind.INTERRUPTED)
        self._jobs.pop(job.key)
        place = job.place
        self._tell(place, Ended(*job.key, uptime(), uptime(), outcome))
        self._page.leave(place.slot)
        place.job = None
        self._next(place)


def _resources(attempt: Attempt) -> dict[str, int]:
    return dict(registry.get(attempt.type).resources)


def backend(name: str) -> Executor:
    """Return the executor with this name in the setting EXECUTORS."""
    from django.utils.module_loading import import_string

    options: dict[str, Any] = settings.EXECUTORS[name]
    return import_string(options["BACKEND"])(name, options)


def main(control: Channel, inherited: Inherited, name: str) -> None:
    """Follow attempts until the supervisor is gone."""
    Follower(control, inherited, backend(name)).run()
