"""Forking dispatcher and workers, and what each begins with."""

import contextlib
import faulthandler
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from .. import descendants, processes
from .. import log as journal
from ..database import name_sessions
from ..dispatcher.commands import ORPHANED
from ..dispatcher.dispatcher import Dispatcher
from ..log_process import LogThread
from ..processes import uptime
from ..protocol import Channel, Inherited, Predecessor, WorkerStarted
from ..shared_memory import Tokens
from ..stderr import NonBlockingStream
from ..worker import worker
from ..worker.execution import Bounded
from .dispatcher_process import DispatcherProcess
from .startup import tell_started
from .worker_processes import WorkerOutput, WorkerProcess, WorkerProcesses

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
    processes.title(f"atpd-worker-{slot}")
    processes.adopt_descendants()
    processes.go_first()
    _print_to(output)
    os.environ[descendants.MARK] = inherited.folders.mark
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return ORPHANED
    worker.draw_other_numbers()
    name_sessions()
    inherited.stacks.answer(slot)
    tell_started("worker")
    return worker.main(slot, channel, tokens, inherited)


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
        dispatcher: DispatcherProcess,
        output: WorkerOutput,
        leaving: Iterable[Callable[[], None]],
        inherited: Inherited,
    ) -> None:
        self._workers = workers
        self._dispatcher = dispatcher
        self._output = output
        self._leaving = (*leaving, dispatcher.close, output.close)
        self._inherited = inherited
        self._next, self._pause = 0.0, FIRST_PAUSE

    def leave_to_parent(self) -> None:
        """In a child: let go of the supervisor's resources."""
        for leave in self._leaving:
            leave()

    def start_missing(self, *, stopping: bool) -> bool:
        """Start the missing processes; return whether a dispatcher was started."""
        if uptime() < self._next:
            return False
        is_due = self._dispatcher.is_due
        try:
            if is_due:
                self._start_dispatcher()
            for slot in self._workers.missing(self._dispatcher.spare) if not stopping else []:
                if self._dispatcher.is_reading:
                    self._start_worker(slot)
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

    def _fork(self, child: Callable[..., int], *arguments: Any) -> tuple[Channel, Channel, int]:
        """Fork a child that runs ``child(parent's pid, its channel end, inherited, …)``.

        Return our end of the channel, the child's end, and the child's pid. Raises OSError.
        """
        ours, theirs = Channel.pair()

        def run(parent: int) -> int:
            self.leave_to_parent()
            ours.close()
            Bounded().start()
            return child(parent, theirs, self._inherited, *arguments)

        try:
            return ours, theirs, processes.fork(run)
        except OSError:
            ours.close()
            theirs.close()
            raise
