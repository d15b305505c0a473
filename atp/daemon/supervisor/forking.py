"""Forking the processes of a daemon. If the system refuses a fork, the supervisor tries again."""

import contextlib
import os

from .. import journal
from ..shared.channel import Channel
from ..shared.inherited import Predecessor
from ..shared.messages import WorkerStarted
from ..shared.tokens import Tokens
from ..sinks.bounded import Bounded
from ..system import processes
from ..system.processes import uptime
from . import entry_points
from .worker_processes import WorkerProcess

# The pause after a failed fork, in seconds; it doubles with each failure, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0


class Forking:
    """Forks the workers that are missing, and the dispatcher.

    All children get ``inherited``. ``leaving`` are the functions that each child calls first,
    to let go of the supervisor's resources.
    """

    def __init__(self, workers, dispatcher, output, leaving, inherited):
        self._workers = workers
        self._dispatcher = dispatcher
        self._output = output
        self._leaving = (*leaving, dispatcher.close, output.close)
        self._inherited = inherited
        self._next, self._pause = 0.0, FIRST_PAUSE

    def leave_to_parent(self):
        """In a child: let go of the supervisor's resources."""
        for leave in self._leaving:
            leave()

    def start_missing(self, *, stopping):
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

    def _start_dispatcher(self):
        dispatcher = self._dispatcher
        predecessor = Predecessor(tuple(dispatcher.identities), dispatcher.request)
        ours, theirs, pid = self._fork(entry_points.be_dispatcher, predecessor)
        theirs.close()
        self._dispatcher.started(pid, ours)

    def _start_worker(self, slot):
        tokens = Tokens.pipe()
        with contextlib.ExitStack() as failed:
            failed.callback(tokens.close)
            output = self._output.open(slot)
            try:
                ours, theirs, pid = self._fork(entry_points.be_worker, slot, tokens, output)
            finally:
                os.close(output)
            failed.pop_all()
        theirs.close()
        self._workers.add(WorkerProcess(slot, pid))
        journal.worker_started(worker=slot, pid=pid)
        self._dispatcher.send(WorkerStarted(slot, pid), ends=(ours, tokens))

    def _fork(self, child, *arguments):
        """Fork a child that runs ``child(parent's pid, its channel end, inherited, …)``.

        Return our end of the channel, the child's end, and the child's pid. Raises OSError.
        """
        ours, theirs = Channel.pair()

        def run(parent):
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
