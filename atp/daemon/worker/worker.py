"""A worker: its loop, how it prepares, and when it retires."""

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from django.core.cache import caches

from ... import folders, messages
from ...authoring.context import Context, LogCapture
from ...authoring.logs import clean
from ...conf import settings
from ...operations.registry import registry
from ...placement import VISIBLE
from ...store.values import Attempt
from .. import descendants, processes, protocol
from ..options import Options, hostname
from ..outcomes import DONE, PUT_OFF, Outcome
from ..protocol import Channel, Closed, Inherited, Key, packed_end, unpacked
from ..shared_memory import NEVER, Tokens
from . import execution
from .execution import guard_own_lines, is_any_abandoned
from .interruption import Interruption, Pauses
from .isolation import EVERY, ContextVariables, Lifelines, ProcessState, Threads, told
from .leftovers import Leftovers, Unkillable, has_children
from .transactions import Checkpoints, Connections, Transaction

# Preparing a worker's process for handlers: its standard input, its log and its caches.

logger = logging.getLogger("atp.worker")

# Libraries end the processes that they have forked by these signals.
_ENDING = (signal.SIGTERM, signal.SIGINT)


def be_a_worker() -> None:
    """Prepare the newly forked process of a worker."""
    close_standard_input()
    let_children_be_ended()


def draw_other_numbers() -> None:
    """Seed numpy's generator anew: Python seeds its own after a fork, and numpy does not."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        with contextlib.suppress(Exception):
            random.seed()


def close_standard_input() -> None:
    """Make standard input empty for this process and its programs: the daemon's may never end."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor:  # it is 0 if the daemon was started without a standard input
        os.dup2(descriptor, 0)
        os.close(descriptor)
    os.set_inheritable(0, True)
    # The old object may have read a part of the input.
    sys.stdin = open(0, closefd=False)


def let_children_be_ended() -> None:
    """Make SIGTERM and SIGINT end the forks that handlers make, as libraries expect.

    The worker itself goes on to ignore these signals; the supervisor handles them.
    """
    own = {number: signal.getsignal(number) for number in _ENDING}
    masks: list[Iterable[int]] = []

    def block() -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING))

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def reset() -> None:
        for number, handler in own.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    # Block the signals during the fork, or the child's old handler could swallow an early one.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


def open_root_logger(level: str) -> None:
    """Let the root logger pass records from ``level`` up; its own handlers get no more of them."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def share_caches() -> None:
    """Create Django's caches now, or the context of each attempt would have its own."""
    for alias in caches.settings:
        with contextlib.suppress(Exception):  # the first user of the cache sees the error
            caches[alias]


def capture(threads: Threads) -> LogCapture:
    """Return the logging handler that writes into the log of the running Instance."""
    return LogCapture(is_of_attempt=threads.is_of_attempt, on_stray=say_stray)


def open_logging(capture: LogCapture) -> None:
    """Make the root logger pass its records to ``capture``."""
    open_root_logger(settings.LOG_LEVEL)
    logging.getLogger().addHandler(capture)


def say_stray(level: int, text: str) -> None:
    """Log, in the daemon's log, a line of a thread that an earlier attempt has left behind."""
    logger.log(level, "a thread that an earlier attempt left behind: %s", text)


# The reasons why a worker runs nothing more and another one takes its place.


def reason_to_retire(options: Options, done: int) -> str | None:
    """Return the reason why a worker that has run ``done`` tasks is to retire, or None."""
    limit = options.max_tasks_per_worker
    if limit is not None and done >= limit:
        return f"it has run {done} tasks"
    limit = options.max_memory_per_worker
    if limit is not None and done:
        resident = processes.resident_bytes()
        if resident > limit:
            return f"it has {resident >> 20} MiB resident, {limit >> 20} MiB are allowed"
    for file in (sys.stdout, sys.stderr):
        if file is not None and file.closed:
            return "a handler closed its standard output or error"
    return None


# A worker: a process that takes one Task after another from its channel and runs its handler.

# The start of a transaction may take this long, in seconds, in addition to the time-out: on
# SQLite it waits for its turn.
BEGIN_WITHIN = 60.0
# An attempt that took less than this, in seconds, has started no process unless Python has told
# of it: to start one takes longer, even from C code.
STARTING = 0.0001
# The longest record that goes into the ring, in bytes; longer ones go through the channel.
MOST_IN_RING = 4096


class Worker:
    """The loop of one worker process. ``slot`` is its number in the page and in the log."""

    def __init__(self, slot: int, channel: Channel, tokens: Tokens, inherited: Inherited) -> None:
        page = inherited.page
        self._slot = slot
        self._channel = channel
        self._tokens = tokens
        self._page = page
        self._ring = page.ring(slot)
        scratch = inherited.folders.scratch
        if scratch is None:
            raise AssertionError("the supervisor makes the scratch folder before it forks")
        self._scratch = scratch / f"worker-{slot}"
        self._options = inherited.options
        self._call_after = inherited.call_after
        # The name with which this worker signs.
        self._name = f"{hostname()}:{os.getppid()} worker {slot}"
        self._done, self._has_told = 0, False
        self._called = 0.0
        self.interruption = Interruption(lambda key: page.is_asked(slot, *key))
        self.interruption.listen()
        self._pauses = Pauses(page, slot)
        self._checkpoints = Checkpoints(self._name, self.interruption, page, slot)
        self._connections = Connections()
        self._threads = Threads()
        self._capture = capture(self._threads)
        self._process_state, self._told = ProcessState(), told()
        self._leftovers = Leftovers()
        self._variables = ContextVariables()
        # The reason why the worker should run nothing more.
        self._worn_out: str | None = None

    def run(self) -> None:
        """Run Tasks until the channel is closed or the worker retires."""
        if folders.is_private(self._scratch.parent):
            shutil.rmtree(self._scratch, ignore_errors=True)  # left by a worker that has died
        open_logging(self._capture)
        share_caches()
        self._threads.install()
        self._process_state = ProcessState()
        self._lifelines = Lifelines(1, 2, self._channel.fileno(), self._tokens.taking)
        try:
            self._channel.send(protocol.Look())
            for attempt in self._given():
                # The dispatcher has taken the token of a task that it took back.
                if not self._tokens.take(attempt.serial):
                    continue
                if self._perform(attempt):
                    return
        except Closed:
            return

    def _given(self) -> Iterator[Attempt]:
        """Yield each attempt that the dispatcher has sent."""
        while True:
            try:
                tasks, _ = self._channel.receive(wait=False)
            except BlockingIOError:
                self._lifelines.check()
                self._call(processes.uptime())
                if not (self._process_state.is_whole or self._channel.has_message(within=EVERY)):
                    # A short attempt may have changed what it was not asked about.
                    self._worn_out = self._process_state.restore() or self._worn_out
                keep = settings.KEEP_CONNECTIONS
                if self._connections.rest() and not self._channel.has_message(within=keep):
                    self._connections.let_go()
                tasks, _ = self._channel.receive()
            yield from unpacked(tasks)

    def _is_to_retire(self) -> bool:
        """Tell whether this worker retires; try to tell the dispatcher, too."""
        # The interruption may have left a library in a broken state.
        struck = "its handler was interrupted" if self.interruption.has_struck else None
        reason = reason_to_retire(self._options, self._done) or struck or self._worn_out
        if reason and not self._has_told:
            # The dispatcher may not be reading, or a handler may have closed the channel.
            with contextlib.suppress(OSError, Closed):
                self._channel.send(protocol.Retiring(reason), wait=False)
                self._has_told = True
        return bool(reason)

    def _perform(self, attempt: Attempt) -> bool:
        """Run one Task; return whether this worker retires.

        The page shows the attempt from before its handler until after its report.
        """
        started, key = processes.uptime(), attempt.key
        is_transactional = registry.is_transactional(attempt.type)
        # A transactional attempt gets extra time, since it waits for its transaction first.
        self._enter(attempt, started, BEGIN_WITHIN if is_transactional else 0.0)
        report = partial(self._report, attempt)
        if attempt.devices:
            os.environ[VISIBLE] = ",".join(attempt.devices)
            self._worn_out = "its process may keep memory of the devices of its attempt"
        self.interruption.expect(key)
        self._pauses.expect(key, report)
        outcome = self._execute(attempt, report, is_transactional, started)
        self._done += 1
        # Before the end is told, or the dispatcher would give this worker another task.
        retires = self._is_to_retire()
        self._tell(key, started, outcome)
        self._page.leave(self._slot)
        return retires and self._is_to_retire()  # again, if nobody could be told yet

    def _enter(self, attempt: Attempt, started: float, grace: float = 0.0) -> None:
        """Write into the page that this attempt runs; its time-out counts from ``started``."""
        timeout = attempt.timeout
        timeout = NEVER if timeout is None else timeout.total_seconds()
        limit = attempt.parameters.max_memory or 0
        before = descendants.in_use(os.getpid()) if limit else 0
        deadline = started + timeout + grace
        facts = (deadline, started, limit, before, timeout, attempt.uuid_text.encode())
        self._page.enter(self._slot, attempt.instance, attempt.number, *facts)

    def _tell(self, key: Key, started: float, outcome: Outcome) -> None:
        """Report the end of an attempt, through the ring or the channel."""
        ended = processes.uptime()
        end = (*key, started, ended, None if outcome is DONE else outcome)
        record = packed_end(*end)
        if len(record) > MOST_IN_RING or not self._ring.write(record):
            self._say(protocol.Ended(*end))
        elif ended - self._called > self._call_after:
            self._call(ended)

    def _call(self, now: float) -> None:
        """Make the dispatcher look into the ring."""
        self._called = now
        # The dispatcher has unread messages anyway, or it looks by itself.
        with contextlib.suppress(OSError, Closed):
            self._channel.send(protocol.Look(), wait=False)

    def _report(self, attempt: Attempt, kind: str, *values: Any, at: float | None = None) -> None:
        """Send a message of a running handler. Any thread or child of the handler may call this."""
        message: Any = protocol.REPORTED[kind]
        self._say(message(attempt.key, at or time.time(), *values))

    def _say(self, message: Any) -> None:
        """Send a message; if the handler has returned, to wait for that is not its time."""
        is_late = not self.interruption.is_inside
        with self._page.unhurried(self._slot) if is_late else contextlib.nullcontext():
            self._channel.send(message)

    def _execute(
        self,
        attempt: Attempt,
        report: Callable[..., None],
        is_transactional: bool,
        began: float,
    ) -> Outcome:
        """Prepare, run the handler and clean up; return an :class:`Outcome` in any case."""
        transaction, own_report = None, report
        if is_transactional:
            transaction = Transaction(attempt, who=self._name, report=report)
            own_report = transaction.report
            transaction.begun = lambda: self._enter(attempt, processes.uptime())
            transaction.before_commit = partial(self._end_leftovers, attempt, own_report)
        context = Context(
            attempt,
            report=own_report,
            interruption=lambda: self._why_to_end(attempt),
            scratch_root=self._scratch,
            halting=self._pauses,
            keeper=self._checkpoints,
            grower=transaction or self._checkpoints,
            worker=self._name,
        )
        if transaction is not None:
            transaction.say_all = context.say_all
        self._threads.begin()
        self._capture.context = context
        try:
            left_open: Callable[..., list[str]] = self._connections.with_transaction
            if is_transactional:
                left_open = partial(left_open, but=settings.DATABASE)
            given = attempt, context, transaction, self.interruption, left_open
            outcome = self._variables.own().run(execution.run, *given)
            is_put_off = outcome is not DONE and outcome.kind in PUT_OFF
            if is_put_off and self._connections.with_transaction():
                report("log", logging.WARNING, messages.left_transaction_open())
            return outcome
        finally:
            took = processes.uptime() - began
            self._worn_out = self._process_state.restore() or self._worn_out
            if is_any_abandoned():
                self._worn_out = "a coroutine has left a loop that does not end"
                report("log", logging.WARNING, messages.coroutines_left_behind())
            if took >= STARTING or self._told.starts:
                self._end_leftovers(attempt, report)
            self._capture.context = None
            context.end()
            context.remove_scratch()
            self._connections.put_back(began)

    def _end_leftovers(self, attempt: Attempt, report: Callable[..., object]) -> None:
        """Kill the processes that the handler has left running: they are part of the attempt."""
        self._told.starts = False
        if not has_children():
            return
        if attempt.type in registry and registry.get(attempt.type).keep_processes:
            self._leftovers.keep()
            return
        try:
            message = self._leftovers.end()
        except Unkillable as error:
            # The processes die with this worker at the latest.
            message = self._worn_out = str(error)
        if message:
            report("log", logging.WARNING, clean(message))

    def _why_to_end(self, attempt: Attempt) -> str | None:
        is_asked = self._page.is_asked(self._slot, attempt.instance, attempt.number)
        return "asked to end" if is_asked else None


def main(slot: int, channel: Channel, tokens: Tokens, inherited: Inherited) -> NoReturn:
    """Run a worker and exit the process; never return."""
    status = 1
    try:
        be_a_worker()
        worker = Worker(slot, channel, tokens, inherited)
        guard_own_lines(inherited.page, slot, worker.interruption)
        worker.run()
        status = 0
    except BaseException:
        logging.getLogger("atp.worker").critical("worker %s failed", slot, exc_info=True)
    finally:
        os._exit(status)
