"""The keeper: a process beside an engine's workers, which runs attempts of daemons elsewhere.

A stub (atp/executors/stub.py) starts it, and stubs connect to its socket. From each it reads
tickets, one line of JSON for each, and writes a line when it has finished with a ticket. It exits
when the last stub has left.

A keeper runs each attempt in a separate worker process, with the code of a daemon's workers. An
attempt lives by the leave of its daemon: the keeper asks for it again and again, counts it from the
moment of asking, and kills the attempt when it runs out. So the time on the way only shortens it,
and no two clocks are compared.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from django.core.signing import BadSignature

from .. import folders, messages
from ..authoring.context import SCRATCH_PREFIX
from ..conf import settings
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
from ..placement import VISIBLE
from ..store.failures import MEMORY, TIMEOUT
from ..store.values import Attempt
from . import descendants, processes, protocol
from .descendants import LeftBehind, MemoryWatch
from .folders import remove_abandoned
from .options import Options, hostname
from .outcomes import Kind, Outcome
from .processes import uptime
from .protocol import Channel, Closed, Ended, Look, Retiring, packed, unpacked_end
from .shared_memory import END, GO, Page, Ring, Tokens
from .stacks import StackFiles
from .worker import interruption

# The most attempts that a keeper runs at a time: an engine's worker has as many threads at most.
MOST = 256
# In seconds: the keeper asks for further leave this often, and connects again after this pause.
ASK_EVERY, AGAIN = 2.0, 1.0
# In seconds: a ticket is given up if its daemon cannot be reached for this long, and a connection
# if the daemon does not answer within this time.
REACH_WITHIN, CONNECT_WITHIN = 20.0, 5.0
# A worker process, or a connection, ends after this many seconds without work.
IDLE = 60.0
# The largest number of messages of an attempt that are sent again after a cut.
MOST_SAID_AGAIN = 1000
# The longest turn of the loop, in seconds.
TURN = 0.1
# Without a stub, a keeper exits after this many seconds, or as soon as it has nothing to report.
ALONE = 10.0


class Stub:
    """The connection of an engine's worker, which waits for the ends of its tickets."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._rest = b""

    def fileno(self) -> int:
        return self._link.fileno()

    def tickets(self) -> Iterator[dict[str, Any]]:
        """Yield what has come. Raises Cut if the worker has ended."""
        try:
            data = self._link.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            raise Cut(str(error)) from None
        if not data:
            raise Cut("the engine's worker has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from map(json.loads, lines)

    def answer(self, number: int, error: str) -> None:
        """Report that the keeper has finished with a ticket, and what went wrong, or ""."""
        line = json.dumps({"number": number, "error": error}) + "\n"
        with contextlib.suppress(OSError):  # it has ended
            self._link.sendall(line.encode())

    def close(self) -> None:
        self._link.close()


@dataclass
class Place:
    """A worker process of the keeper."""

    slot: int
    pid: int
    channel: Channel
    tokens: Tokens
    ring: Ring
    idle_since: float = field(default_factory=uptime)
    serial: int = 0
    job: "Job | None" = None
    # The number of its attempt's pause.
    pause: int = 0
    # It exits, or is killed because it was idle.
    is_leaving: bool = False


@dataclass
class Job:
    """An attempt that a ticket names. ``number`` is that of the ticket from the stub.

    ``until`` is when its leave runs out, and ``kill_at`` when the grace of its end is over.
    ``over`` is its end, until the daemon has noted it. ``gone`` is the report of its death.
    """

    stub: Stub
    number: int
    ticket: Ticket
    visible: str | None
    since: float = field(default_factory=uptime)
    place: Place | None = None
    until: float = float("inf")
    kill_at: float = float("inf")
    why: tuple[str, str] | None = None
    over: tuple[float, float, Any] | None = None
    gone: Gone | None = None
    attempt: Attempt | None = None
    # The number of its last message, and the messages that its daemon may not have heard. Until a
    # message is sent, its ``age`` is the time at which it was said.
    said: int = 0
    unheard: deque[Said] = field(default_factory=lambda: deque(maxlen=MOST_SAID_AGAIN))


class Daemon:
    """The connection to a daemon, which is made again when it is cut."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.jobs: dict[Key, Job] = {}
        self.wire: Wire | None = None
        self.used = uptime()
        self._again = self._asked = self._began = 0.0

    def turn(self) -> None:
        """Connect if that is due, and ask for leave."""
        now = uptime()
        if self.jobs:
            self.used = now
        if self.wire is None and self.jobs and now >= self._again:
            self._again = now + AGAIN
            try:
                self.wire, self._began = Wire.connect(self.address), now
            except Cut:
                return
            running = tuple(key for key, job in self.jobs.items() if job.place is not None)
            self.say(Hello(hostname(), os.getpid(), settings.RELEASE, running))
            for key, job in self.jobs.items():
                self._resume(key, job)
            self._asked = 0.0
        if self.wire is not None and not self.wire.is_open and now - self._began > CONNECT_WITHIN:
            self.cut()
        if now - self._asked >= ASK_EVERY:
            keys = tuple(key for key, job in self.jobs.items() if job.place is not None)
            if keys:
                self._asked = now
                self.say(Asking(keys, now))

    def _resume(self, key: Key, job: Job) -> None:
        """Say again what the daemon may not have heard."""
        for said in job.unheard:
            self.say(said._replace(age=uptime() - said.age))
        if job.over is not None:
            seconds, ended, outcome = job.over
            now = uptime()
            self.say(Over(key, seconds, now - ended, outcome, now))
        elif job.gone is not None:
            self.say(job.gone)
        elif job.place is None:
            self.say(MayI(key, uptime()))

    def pass_on(self, job: Job, message: Any) -> None:
        """Pass on what an attempt says, and keep it until the daemon has heard it."""
        job.said += 1
        said = Said(job.ticket.key, job.said, message, uptime())
        job.unheard.append(said)
        self.say(said._replace(age=0.0))

    def on_leave(self, leave: Leave) -> None:
        """Note until when attempts may live, and forget the messages that the daemon has heard."""
        for key, heard in zip(leave.keys, leave.heard, strict=True):
            job = self.jobs.get(key)
            if job is not None:
                job.until = leave.asked + leave.seconds
                while job.unheard and job.unheard[0].number <= heard:
                    job.unheard.popleft()

    def say(self, message: object) -> None:
        """Send a message, if there is a connection; :meth:`turn` reports all that matters again."""
        if self.wire is not None:
            try:
                self.wire.send(message)
            except Cut:
                self.cut()

    def cut(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None


class Keeper:
    """Runs attempts here for the stubs that connect to ``listener``."""

    def __init__(self, scratch: Path, listener: socket.socket) -> None:
        self._listener = listener
        self._stubs: dict[int, Stub] = {}
        self._alone_since = uptime()
        self._page = Page(MOST)
        self._stacks = StackFiles(MOST)
        self._stacks.open()
        own: Any = SimpleNamespace(scratch=scratch, mark=descendants.mark(scratch.name))
        # A keeper sleeps until one of its workers calls.
        options = Options(processes=MOST)
        self._inherited = protocol.Inherited(self._page, options, own, self._stacks, call_after=0.0)
        self._memory = MemoryWatch()
        self._left_behind = LeftBehind()
        self._daemons: dict[tuple[str, int], Daemon] = {}
        self._places: dict[int, Place] = {}

    # Tickets

    def _hear_stubs(self, ready: Collection[int]) -> None:
        for number, stub in list(self._stubs.items()):
            if number in ready:
                self._hear_stub(stub)
        if self._listener.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                link, _ = self._listener.accept()
                link.setblocking(True)
                self._stubs[link.fileno()] = Stub(link)

    def _hear_stub(self, stub: Stub) -> None:
        try:
            for ticket in stub.tickets():
                self.take(stub, **ticket)
        except Cut as error:
            del self._stubs[stub.fileno()]
            stub.close()
            for daemon in self._daemons.values():
                for key, job in list(daemon.jobs.items()):
                    if job.stub is stub and job.place is not None:
                        self._kill(job, str(error), "engine")
                    elif job.stub is stub and job.over is None and job.gone is None:
                        del daemon.jobs[key]

    @property
    def is_over(self) -> bool:
        """True if no stub and no daemon needs the keeper any more."""
        if self._stubs:
            self._alone_since = uptime()
            return False
        has_jobs = any(daemon.jobs for daemon in self._daemons.values())
        return uptime() - self._alone_since > (ALONE if has_jobs or not self._daemons else 0.0)

    def take(self, stub: Stub, number: int, text: str, visible: str | None) -> None:
        """Begin with a ticket: ask its daemon whether the attempt may start.

        ``visible`` are the GPUs that the engine lets the attempt use.
        """
        try:
            ticket = Ticket.read(text)
        except (BadSignature, TypeError, ValueError):
            stub.answer(number, "the ticket is forged, or that of another project")
            return
        daemon = self._daemons.setdefault(ticket.address, Daemon(ticket.address))
        if ticket.key in daemon.jobs:
            stub.answer(number, "the attempt is here already")
            return
        daemon.jobs[ticket.key] = Job(stub, number, ticket, visible)
        if daemon.wire is None:
            daemon.turn()
        else:
            daemon.say(MayI(ticket.key, uptime()))

    def _finish(self, daemon: Daemon, job: Job, error: str = "") -> None:
        daemon.jobs.pop(job.ticket.key, None)
        job.stub.answer(job.number, error)

    # Messages of daemons

    def hear(self, daemon: Daemon) -> None:
        """Read the messages of a daemon."""
        if daemon.wire is None:
            return
        try:
            for message in daemon.wire.receive():
                self._on_message(daemon, message)
        except (Cut, Forged):
            daemon.cut()

    def _on_message(self, daemon: Daemon, message: Any) -> None:
        match message:
            case Go():
                self._on_go(daemon, message)
            case Then():
                self._on_then(daemon, message)
            case Leave():
                daemon.on_leave(message)
            case End(key=key):
                job = daemon.jobs.get(key)
                if job is not None and job.place is not None:
                    self._page.ask(job.place.slot, *key, END)
                    processes.kill(job.place.pid, interruption.SIGNAL)
                    job.kill_at = min(job.kill_at, uptime() + message.grace)
            case No(key=key):
                job = daemon.jobs.get(key)
                if job is not None:
                    self._refused(daemon, job, message.why)
            case Done(key=key):
                job = daemon.jobs.get(key)
                if job is not None and job.place is None:
                    self._finish(daemon, job)

    def _on_go(self, daemon: Daemon, go: Go) -> None:
        job = daemon.jobs.get(go.key)
        if job is None:
            daemon.say(Gone(go.key, "the engine's worker has ended", UNSTARTED))
        elif job.place is None and job.over is None and job.gone is None:
            self._start(daemon, job, go)

    def _on_then(self, daemon: Daemon, then: Then) -> None:
        """Take a further attempt for the ticket of one that has ended."""
        ended, go = daemon.jobs.pop(then.key, None), then.go
        if ended is None or ended.stub.fileno() not in self._stubs:
            daemon.say(Gone(go.key, "the engine's worker has ended", UNSTARTED))
            return
        instance, attempt = go.key
        facts = {"instance": instance, "attempt": attempt, "type": go.attempt.type}
        ticket = ended.ticket._replace(**facts)
        daemon.jobs[go.key] = job = Job(ended.stub, ended.number, ticket, ended.visible)
        self._start(daemon, job, go)

    def _refused(self, daemon: Daemon, job: Job, why: str) -> None:
        """Forget an attempt that the daemon does not know."""
        if job.place is not None:
            self._kill(job, why, "")
        elif job.over is not None or job.gone is not None:
            self._finish(daemon, job)
        else:
            self._finish(daemon, job, why)

    def _start(self, daemon: Daemon, job: Job, go: Go) -> None:
        key = go.key
        job.until = go.asked + go.leave
        if job.until <= uptime():
            self._unstarted(daemon, job, "the answer has taken too long")
            return
        attempt: Attempt = go.attempt
        job.attempt = attempt
        if attempt.type not in registry:
            outcome = Outcome(Kind.FATAL, message=messages.type_unknown_there(attempt.type))
            job.over = 0.0, uptime(), outcome
            daemon.say(Over(key, 0.0, 0.0, outcome, uptime()))
            return
        if job.visible is not None and job.visible != os.environ.get(VISIBLE):
            attempt.devices = tuple(job.visible.split(","))
        self._give(daemon, job)

    def _unstarted(self, daemon: Daemon, job: Job, why: str) -> None:
        """Report to a daemon that an attempt has not begun here, and will not."""
        job.gone, job.since = Gone(job.ticket.key, why, UNSTARTED), uptime()
        daemon.say(job.gone)

    def _give(self, daemon: Daemon, job: Job) -> None:
        """Give an attempt to an idle worker process, or to a new one."""
        for place in [each for each in self._places.values() if each.job is None]:
            if not place.is_leaving and self._hand(place, job):
                return
        try:
            is_given = self._hand(self._fork(), job)
        except (OSError, StopIteration) as error:
            self._unstarted(daemon, job, f"no process can be started: {error or 'too many'}")
        else:
            if not is_given:
                self._unstarted(daemon, job, "its process has died")

    def _hand(self, place: Place, job: Job) -> bool:
        """Hand an attempt to a worker process; return False if that has ended."""
        assert job.attempt is not None
        place.serial += 1
        job.attempt.serial = place.serial
        place.tokens.give([place.serial])
        try:
            place.channel.send(packed([job.attempt]), wait=False)
        except (BlockingIOError, Closed):
            place.is_leaving = True
            return False
        place.job, job.place = job, place
        return True

    # Worker processes

    def _fork(self) -> Place:
        from .supervisor.children import be_worker
        from .worker.execution import Bounded

        slot = next(number for number in range(MOST) if number not in self._places)
        self._page.leave(slot)
        ours, theirs = Channel.pair()
        tokens = Tokens.pipe()

        def run(parent: int) -> int:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            ours.close()
            for daemon in self._daemons.values():
                daemon.cut()
            self._listener.close()
            for stub in self._stubs.values():
                stub.close()
            Bounded().start()
            return be_worker(parent, theirs, self._inherited, slot, tokens, os.dup(2))

        pid = processes.fork(run)
        theirs.close()
        place = Place(slot, pid, ours, tokens, self._page.ring(slot))
        place.ring.skip()
        self._places[slot] = place
        return place

    def hear_place(self, place: Place) -> None:
        """Read the messages of a worker process, and pass them on."""
        until = place.ring.written
        for message in place.channel.drain():
            match message:
                case Look():
                    pass
                case Retiring():
                    place.is_leaving = True
                case Ended():
                    self._ended(place, *message)
                case protocol.Resuming(key=key):
                    # No daemon takes the place of an attempt that pauses: it goes on at once.
                    if not self._page.is_asked(place.slot, *key):
                        self._page.ask(place.slot, *key, GO, place.pause)
                case protocol.Paused(number=number):
                    place.pause = number
                case protocol.Resumed():
                    pass
                case _ if place.job is not None:
                    self._daemons[place.job.ticket.address].pass_on(place.job, message)
        for record in place.ring.read(until):
            self._ended(place, *unpacked_end(record))

    def _ended(
        self, place: Place, instance: int, number: int, started: float, ended: float, outcome: Any
    ) -> None:
        job = place.job
        if job is None or job.ticket.key != (instance, number):
            return
        place.job, place.idle_since = None, uptime()
        job.place, job.over, job.since = None, (ended - started, ended, outcome), uptime()
        daemon = self._daemons[job.ticket.address]
        now = uptime()
        daemon.say(Over(job.ticket.key, ended - started, now - ended, outcome, now))

    def _kill(self, job: Job, why: str, cause: str) -> None:
        if job.place is not None:
            job.why = job.why or (why, cause)
            processes.kill(job.place.pid)

    def reap(self) -> None:
        """Report to the daemons the attempts whose process has died."""
        processes.reap(self._died)

    def _died(self, pid: int, status: int) -> None:
        place = next((each for each in self._places.values() if each.pid == pid), None)
        if place is None:
            return
        self.hear_place(place)
        del self._places[place.slot]
        known = {each.pid for each in self._places.values()}
        self._left_behind.end(known, lambda: None)
        job = place.job
        is_begun = job is None or not place.tokens.take(place.serial)
        place.channel.close()
        place.tokens.close()
        if job is None:
            return
        if job.why is None and not is_begun:
            # It was about to exit, and has not begun with this attempt.
            job.place = None
            self._give(self._daemons[job.ticket.address], job)
            return
        how, cause = job.why or (processes.describe_status(status), processes.cause_of(status))
        job.place, job.gone, job.since = None, Gone(job.ticket.key, how, cause), uptime()
        self._daemons[job.ticket.address].say(job.gone)

    # The loop

    def enforce(self) -> None:
        """Kill the attempts that have no leave, or have exceeded a limit of time or memory."""
        now = uptime()
        limited = {}
        for daemon in self._daemons.values():
            for job in list(daemon.jobs.values()):
                if job.place is None:
                    if now - max(job.since, job.until if job.until < now else 0) > REACH_WITHIN:
                        self._finish(daemon, job, "its daemon cannot be reached")
                    continue
                running = self._page.read(job.place.slot)
                if now >= job.until:
                    self._kill(job, "its leave has run out", "")
                elif now >= job.kill_at:
                    self._kill(job, "it has not ended within its grace", "")
                elif running is not None and now >= running.deadline:
                    self._kill(job, messages.timed_out(running.timeout), TIMEOUT)
                elif running is not None and running.memory and processes.LINUX:
                    limited[job.place.pid] = job, running
        for pid, why in self._memory.excesses({pid: run for pid, (_, run) in limited.items()}):
            self._kill(limited[pid][0], why, MEMORY)
        for place in self._places.values():
            if place.job is None and now - place.idle_since > IDLE:
                place.is_leaving = True
                processes.kill(place.pid)

    def turn(self) -> None:
        """Wait for messages and tickets, and do what is due."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        for stub in self._stubs.values():
            poll.register(stub, select.POLLIN)
        for place in self._places.values():
            poll.register(place.channel.fileno(), select.POLLIN)
        for daemon in self._daemons.values():
            if daemon.wire is not None:
                waits = select.POLLOUT if daemon.wire.waits else 0
                poll.register(daemon.wire.fileno(), select.POLLIN | waits)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * TURN)}
        self._hear_stubs(ready)
        for place in list(self._places.values()):
            if place.channel.fileno() in ready or place.ring.has_news:
                self.hear_place(place)
        self.reap()
        for daemon in list(self._daemons.values()):
            self.hear(daemon)
            daemon.turn()
            if daemon.wire is not None:
                try:
                    daemon.wire.flush()
                except Cut:
                    daemon.cut()
            if uptime() - daemon.used > IDLE:
                daemon.cut()
                del self._daemons[daemon.address]
        self.enforce()

    def end(self) -> None:
        """Kill all attempts: the engine's worker has ended."""
        for place in self._places.values():
            processes.kill(place.pid)
        self._left_behind.end((), lambda: None)
        for daemon in self._daemons.values():
            for key, job in daemon.jobs.items():
                if job.place is not None:
                    daemon.say(Gone(key, "the engine's worker has ended", "engine"))


def main(path: str) -> NoReturn:
    """Serve the stubs at this path until the last has left."""
    registry.declare_own()
    processes.title("atp-keeper")
    processes.adopt_descendants()
    # Keepers that were killed have left processes and folders.
    descendants.end_abandoned()
    remove_abandoned()
    scratch, _lock = folders.make_locked_folder(settings.SCRATCH_DIR, SCRATCH_PREFIX)
    with socket.socket(socket.AF_UNIX) as listener:
        # Under its name, a socket that nobody listens on is that of a dead keeper.
        listener.bind(f"{path}.new")
        listener.listen(MOST)
        listener.setblocking(False)
        os.rename(f"{path}.new", path)
        keeper = Keeper(scratch, listener)
        try:
            while not keeper.is_over:
                keeper.turn()
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            keeper.end()
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0)
