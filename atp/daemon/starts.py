"""Starting the processes of a daemon; where the system refuses one, a little later again."""

import contextlib
import os

from . import children, journal, processes
from .channel import Channel
from .crew import WorkerProcess
from .processes import uptime
from .tokens import Tokens

# After a fork that failed the next try waits this long, in seconds, and ever longer.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0


class Starts:
    """Forks whatever is missing in the supervisor's crew, and its dispatcher.

    ``shared`` is what the children are given: page, options, folders.
    """

    def __init__(self, crew, liaison, prints, signals, shared):
        self._crew = crew
        self._dispatcher = liaison
        self._prints = prints
        self._signals = signals
        self._shared = shared
        self._next, self._pause = 0.0, FIRST_PAUSE

    def start_missing(self, *, stopping):
        """Start what is missing; returns whether a dispatcher was started."""
        if uptime() < self._next:
            return False
        is_due = self._dispatcher.is_due
        try:
            if is_due:
                self._start_dispatcher()
            for slot in self._crew.missing(self._dispatcher.spare) if not stopping else []:
                if self._dispatcher.is_listening:
                    self._start_worker(slot)
            self._pause = FIRST_PAUSE
        except OSError as error:
            journal.cannot_fork(error=error, seconds=self._pause)
            self._next = uptime() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return is_due and self._dispatcher.pid is not None

    def _start_dispatcher(self):
        previous = tuple(self._dispatcher.identities)
        request = self._dispatcher.request
        ours, theirs, pid = self._fork(children.be_dispatcher, *self._shared, previous, request)
        theirs.close()
        self._dispatcher.started(pid, ours)

    def _start_worker(self, slot):
        tokens = Tokens.pipe()
        with contextlib.ExitStack() as failed:
            failed.callback(tokens.close)
            output = self._prints.open(slot)
            try:
                ours, theirs, pid = self._fork(
                    children.be_worker, tokens, output, *self._shared, slot
                )
            finally:
                os.close(output)
            failed.pop_all()
        theirs.close()
        self._crew.add(WorkerProcess(slot, pid))
        journal.worker_started(worker=slot, pid=pid)
        self._dispatcher.say("worker", slot, pid, ends=(ours, tokens))

    def _fork(self, child, *arguments):
        """Fork a child that runs ``child(parent's pid, its channel end, …)``.

        Returns both ends of its channel and its pid. Raises OSError.
        """
        ours, theirs = Channel.pair()

        def run(parent):
            self._signals.leave_to_parent()
            ours.close()
            self._dispatcher.close()
            self._prints.close()
            return child(parent, theirs, *arguments)

        try:
            return ours, theirs, processes.fork(run)
        except OSError:
            ours.close()
            theirs.close()
            raise
