"""The supervisor's children: its view of the dispatcher, forking, and what a child begins with."""

import contextlib
import faulthandler
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from ... import signals
from .. import descendants, processes, protocol
from .. import log as journal
from ..database import name_sessions
from ..dispatcher.commands import ORPHANED
from ..dispatcher.dispatcher import Dispatcher
from ..log_process import LogThread
from ..processes import uptime
from ..protocol import (
    Channel,
    Closed,
    Freeze,
    Inherited,
    Interrupt,
    Kill,
    Predecessor,
    TakeStack,
    Thaw,
    WorkerStarted,
)
from ..shared_memory import Page, Tokens
from ..stderr import NonBlockingStream
from ..worker import worker
from ..worker.execution import Bounded
from .loop_processes import LoopProcesses
from .places import Places
from .worker_processes import WorkerOutput, WorkerProcess, WorkerProcesses

# The supervisor's view of the dispatcher: its process, its channel and its last messages.

# If dispatchers die within this many seconds, each next one is started after a longer pause.
QUICK_DEATH = 5.0
SLOWEST_RESTART = 10.0
MOST_UNREAD = 8
LONGEST_TURN = 1.0


class DispatcherProcess:
    """The current dispatcher, and then its successor; ``pid`` is None while there is none.

    ``identities`` are the uuids under which Tasks may still be held. The workers may live
    until ``lease_until`` on the uptime clock. ``request`` is the last request in the daemon's
    row. ``stop`` is the dispatcher's reason to stop the daemon, "" if it has none.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self.pid: int | None = None
        self.channel: Channel | None = None
        self.identities: list[UUID] = []
        self.lease_until: float | None = None
        # The seconds without a sign of life from it, and until when they are counted.
        self._silent = self._listened = 0.0
        # The number of additional workers that it wants, in place of paused ones.
        self.spare = 0
        self.request = self.stop = ""
        self._outbox: list[tuple[tuple[Any, ...], Sequence[Channel | Tokens]]] = []
        self._started = self._due = 0.0
        self._quick_deaths = 0

    @property
    def is_due(self) -> bool:
        """Whether there is no dispatcher, and the supervisor may start one now."""
        return self.pid is None and uptime() >= self._due

    @property
    def is_reading(self) -> bool:
        """Whether the dispatcher reads its messages. Unread ones keep descriptors open here."""
        return self.pid is not None and len(self._outbox) < MOST_UNREAD

    def started(self, pid: int, channel: Channel) -> None:
        """Note the pid and the channel of a dispatcher that has just been started."""
        self.pid, self.channel = pid, channel
        self._started = self._listened = uptime()
        self._silent = 0.0
        self.lease_until = None
        self.spare = 0

    def died(self, status: int) -> None:
        """Note its death: the next dispatcher is due at once, or later if they keep dying."""
        quick = uptime() - self._started < QUICK_DEATH
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        pause = 0.0
        if self._quick_deaths > 1:
            pause = min(2.0 ** (self._quick_deaths - 2), SLOWEST_RESTART)
        self._due = uptime() + pause
        how = processes.describe_status(status)
        journal.dispatcher_died(pid=self.pid, how=how, seconds=pause)
        self.pid = None
        self.close()

    def close(self) -> None:
        """Close the channel, and the ends that wait to be passed through it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for _, ends in self._outbox:
            for end in ends:
                end.close()
        self._outbox = []

    def receive(self) -> Iterator[Kill | Interrupt | Freeze | Thaw | TakeStack]:
        """Note the dispatcher's messages about itself; yield those that concern a worker."""
        while self.channel is not None:
            try:
                message, _ = self.channel.receive(wait=False)
            except (BlockingIOError, Closed):
                return
            self._silent = 0.0
            match message:
                case protocol.LeaseRenewed():
                    self.lease_until = message.until
                    self._page.renew_lease(message.until)
                case protocol.Joining():
                    if message.identity not in self.identities:
                        self.identities.append(message.identity)
                case protocol.Joined():
                    self.identities = list(message.identities)
                case protocol.SpareWanted():
                    self.spare = message.count
                case protocol.Ordered():
                    self.request = message.request
                case protocol.StopWanted():
                    self.stop = message.why
                case protocol.Alive():
                    pass
                case _:
                    yield message

    def send(self, message: tuple[Any, ...], ends: Sequence[Channel | Tokens] = ()) -> None:
        """Send a message and pass the ``ends``; later, if the dispatcher is not reading."""
        self._outbox.append((message, ends))
        self.flush()

    def flush(self) -> None:
        """Send the messages that could not be sent before."""
        while self._outbox and self.channel is not None:
            message, ends = self._outbox[0]
            try:
                descriptors = [number for end in ends for number in end.descriptors()]
                self.channel.send(message, descriptors, wait=False)
            except (BlockingIOError, Closed):
                return
            self._outbox.pop(0)
            for end in ends:
                end.close()

    def end_if_silent(self, limit: float) -> None:
        """Kill the dispatcher if it has given no sign of life for ``limit`` seconds.

        Each turn of the supervisor counts as LONGEST_TURN at most: if it takes longer, the host was
        suspended or both processes were frozen, and the dispatcher could not give one.
        """
        now = uptime()
        self._silent += min(now - self._listened, LONGEST_TURN)
        self._listened = now
        if self.pid is not None and self._silent > limit:
            journal.dispatcher_hung(pid=self.pid, seconds=self._silent)
            processes.kill(self.pid)
            self._silent = 0.0


# Forking dispatcher and workers, and what each begins with.

# The main functions of the supervisor's children. Each returns the exit status.

# The number of new objects after which the dispatcher's garbage collector looks for cycles.
GARBAGE = 50_000


def be_dispatcher(
    parent: int, control: Channel, inherited: Inherited, predecessor: Predecessor
) -> int:
    """Run the dispatcher of the supervisor whose pid is ``parent``."""
    processes.title("atpd-dispatch")
    # The dispatcher makes and frees thousands of small objects a second, which form no cycles.
    gc.set_threshold(GARBAGE)
    inherited.stacks.close()
    log = LogThread(journal.lines_dropped)
    log.start()
    sys.stderr = NonBlockingStream()
    try:
        return _dispatch(parent, control, inherited, predecessor)
    except BaseException:
        journal.logger.critical("the dispatcher failed", exc_info=True)
        return 1
    finally:
        log.close()


def _dispatch(parent: int, control: Channel, inherited: Inherited, predecessor: Predecessor) -> int:
    dispatcher = Dispatcher(control, inherited, predecessor)
    signal.signal(signal.SIGUSR1, dispatcher.orphan)
    if not processes.die_with_parent(parent, signal.SIGUSR1):
        return ORPHANED
    tell_started("dispatcher")
    status = dispatcher.run()
    if status == ORPHANED:
        inherited.folders.remove()
    return status


def be_worker(
    parent: int, channel: Channel, inherited: Inherited, slot: int, tokens: Tokens, output: int
) -> int:
    """Run the worker of this slot. Its prints go to the descriptor ``output``."""
    processes.adopt_descendants()
    if not _is_ready_for_handlers(parent, inherited, f"atpd-worker-{slot}", slot, output):
        return ORPHANED
    return worker.main(slot, channel, tokens, inherited)


def _is_ready_for_handlers(
    parent: int, inherited: Inherited, title: str, stack_slot: int, output: int
) -> bool:
    """Prepare this process for handlers; False if its parent has died."""
    processes.title(title)
    processes.go_first()
    _print_to(output)
    os.environ[descendants.MARK] = inherited.folders.mark
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return False
    worker.draw_other_numbers()
    name_sessions()
    inherited.stacks.answer(stack_slot)
    tell_started("worker")
    return True


def be_loop(
    parent: int,
    unused: Channel,
    inherited: Inherited,
    number: int,
    stack_slot: int,
    places: Sequence[tuple[int, Channel, Tokens]],
    output: int,
) -> int:
    """Run the loop of this number, whose ``places`` are slots with their channels and tokens."""
    unused.close()
    if not _is_ready_for_handlers(parent, inherited, f"atpd-loop-{number}", stack_slot, output):
        return ORPHANED
    # Few daemons have loops.
    from ..worker import loops

    return loops.main(number, places, inherited)


def be_follower(parent: int, control: Channel, inherited: Inherited) -> int:
    """Run the follower of a daemon whose attempts run elsewhere."""
    processes.title("atpd-follower")
    inherited.stacks.close()
    log = LogThread(journal.lines_dropped)
    log.start()
    sys.stderr = NonBlockingStream()
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return ORPHANED
    tell_started("follower")
    # No other process needs what it imports.
    from .. import follower

    try:
        follower.main(control, inherited, inherited.options.executor)
    except Closed:
        return ORPHANED
    except BaseException:
        journal.logger.critical("the follower failed", exc_info=True)
    finally:
        log.close()
    return 1


def _print_to(output: int) -> None:
    """Send the output of this process, and of the programs that it starts, to ``output``."""
    for stream in (1, 2):
        os.dup2(output, stream)
    if output > 2:
        os.close(output)
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(line_buffering=True)
    # If the process crashes, faulthandler writes its stack.
    faulthandler.enable(2, all_threads=False)


# Forking the processes of a daemon. If the system refuses a fork, the supervisor tries again.

# The pause after a failed fork, in seconds; it doubles with each failure, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0


class Forking:
    """Forks the workers that are missing, and the dispatcher.

    All children get ``inherited``. ``leaving`` are the functions that each child calls first,
    to let go of the supervisor's resources.
    """

    def __init__(
        self,
        workers: WorkerProcesses,
        loops: LoopProcesses,
        dispatcher: DispatcherProcess,
        output: WorkerOutput,
        leaving: Iterable[Callable[[], None]],
        inherited: Inherited,
    ) -> None:
        self._workers = workers
        self._loops = loops
        self._dispatcher = dispatcher
        self._output = output
        self._leaving = (*leaving, dispatcher.close, output.close)
        self._inherited = inherited
        self._page = inherited.page
        self._next, self._pause = 0.0, FIRST_PAUSE

    def leave_to_parent(self) -> None:
        """In a child: let go of the supervisor's resources."""
        for leave in self._leaving:
            leave()

    def start_missing(self, *, stopping: bool) -> bool:
        """Start the missing processes; return whether a dispatcher was started."""
        if uptime() < self._next:
            return False
        places = self._workers if isinstance(self._workers, Places) else None
        is_due = self._dispatcher.is_due and (places is None or places.is_settled)
        start = self._start_worker if places is None else partial(self._open_place, places)
        try:
            if is_due:
                self._start_dispatcher()
                if places is not None:
                    places.tell_again()
            if places is not None and places.wants_follower and not stopping:
                self._start_follower(places)
            for slot in self._workers.missing(self._dispatcher.spare) if not stopping else []:
                if self._dispatcher.is_reading:
                    start(slot)
            for number in self._loops.missing() if not stopping else []:
                if self._dispatcher.is_reading:
                    self._start_loop(number)
            if places is not None and self._dispatcher.is_reading and (news := places.news()):
                self._dispatcher.send(news)
            self._pause = FIRST_PAUSE
        except OSError as error:
            journal.cannot_fork(error=error, seconds=self._pause)
            self._next = uptime() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return is_due and self._dispatcher.pid is not None

    def _start_dispatcher(self) -> None:
        dispatcher = self._dispatcher
        predecessor = Predecessor(tuple(dispatcher.identities), dispatcher.request)
        ours, theirs, pid = self._fork(be_dispatcher, predecessor)
        theirs.close()
        self._dispatcher.started(pid, ours)

    def _start_worker(self, slot: int) -> None:
        tokens = Tokens.pipe()
        with contextlib.ExitStack() as failed:
            failed.callback(tokens.close)
            output = self._output.open(slot)
            try:
                ours, theirs, pid = self._fork(be_worker, slot, tokens, output)
            finally:
                os.close(output)
            failed.pop_all()
        theirs.close()
        self._workers.add(WorkerProcess(slot, pid))
        journal.worker_started(worker=slot, pid=pid)
        self._dispatcher.send(WorkerStarted(slot, pid), ends=(ours, tokens))

    def _start_loop(self, number: int) -> None:
        slots = self._loops.slots_of(number)
        with contextlib.ExitStack() as failed:
            own: list[tuple[int, Channel, Tokens]] = []
            given: list[tuple[int, Channel, Tokens]] = []
            for slot in slots:
                tokens = Tokens.pipe()
                failed.callback(tokens.close)
                ours, theirs = Channel.pair()
                failed.callback(ours.close)
                failed.callback(theirs.close)
                own.append((slot, ours, tokens))
                given.append((slot, theirs, tokens))
                self._page.leave(slot)
            output = self._output.open(slots[0])
            leave = [ours.close for _, ours, _ in own]
            stack_slot = self._loops.stack_slot(number)
            try:
                control, other, pid = self._fork(
                    be_loop, number, stack_slot, given, output, leaving=leave
                )
            finally:
                os.close(output)
            self._loops.add(number, pid)
            failed.pop_all()
        for end in (control, other, *(theirs for _, theirs, _ in given)):
            end.close()
        journal.loop_started(loop=number, pid=pid)
        for slot, ours, tokens in own:
            self._dispatcher.send(WorkerStarted(slot, pid, number), ends=(ours, tokens))

    def _start_follower(self, places: Places) -> None:
        ours, theirs, pid = self._fork(be_follower)
        theirs.close()
        places.started(pid, ours)

    def _open_place(self, places: Places, slot: int) -> None:
        tokens = Tokens.pipe()
        with contextlib.ExitStack() as failed:
            failed.callback(tokens.close)
            ours, theirs = Channel.pair()
            failed.callback(ours.close)
            with contextlib.closing(theirs):
                place = places.open(slot, theirs, tokens)
            if place is not None:
                failed.pop_all()
                self._dispatcher.send(WorkerStarted(slot, place.pid), ends=(ours, tokens))

    def _fork(
        self,
        child: Callable[..., int],
        *arguments: Any,
        leaving: Iterable[Callable[[], None]] = (),
    ) -> tuple[Channel, Channel, int]:
        """Fork a child that runs ``child(parent's pid, its channel end, inherited, …)``.

        The child calls the functions ``leaving`` first. Return our end of the channel, the
        child's end, and the child's pid. Raises OSError.
        """
        ours, theirs = Channel.pair()

        def run(parent: int) -> int:
            self.leave_to_parent()
            ours.close()
            for leave in leaving:
                leave()
            Bounded().start()
            return child(parent, theirs, self._inherited, *arguments)

        try:
            return ours, theirs, processes.fork(run)
        except OSError:
            ours.close()
            theirs.close()
            raise


# Sending the signal process_started, which tells the project that a daemon's process began.


def tell_started(role: str) -> None:
    """Send process_started to its receivers, and log those that fail."""
    try:
        told: list[tuple[Any, Any]] = signals.process_started.send_robust(sender=None, role=role)
    except BaseException as error:
        told = [(None, error)]
    for _, error in told:
        if isinstance(error, BaseException):
            journal.receiver_failed(role=role, error=error, exc_info=error)
