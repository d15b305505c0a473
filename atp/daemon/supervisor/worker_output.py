"""Forwarding the output of workers to the daemon's standard error.

Handlers, and the programs that they start, write into a pipe of their worker. The supervisor
passes on whole lines, with the name of the worker. It never waits for a worker or for the
reader of the daemon's log. So a log that nobody reads blocks no handler, and a handler that
prints without end fills neither the log nor a processor.
"""

import contextlib
import os
from dataclasses import dataclass, field

from ... import text
from .. import journal
from ..system.processes import uptime
from ..system.stderr import writer
from .output_lines import marked

# The most that is written for the output of a worker, in bytes a second, and in bytes at once;
# the rest is dropped and counted.
RATE = 1024 * 1024
# The supervisor reads from a worker every EVERY seconds, and PIECE bytes at a time. A worker
# that prints faster has to wait a little.
EVERY, PIECE = 0.004, 64 * 1024
# A line that is longer is passed on in parts.
LONGEST_LINE = 8 * 1024
# The amount that was dropped is logged this often, in seconds.
TELL_EVERY = 10.0


@dataclass
class _Pipe:
    """The reading end of a worker's pipe, and the state of its rate limit."""

    descriptor: int
    counted: float
    rest: bytes = field(default=b"", init=False)
    due: float = field(default=0.0, init=False)
    credit: float = field(default=RATE, init=False)
    dropped: int = field(default=0, init=False)
    reported: float = field(default=0.0, init=False)


class WorkerOutput:
    """The pipes of the workers, by slot.

    ``name_of(slot)`` returns the uuid of the Instance that the slot's worker runs, or None.
    """

    def __init__(self, name_of, descriptor=2):
        self._name_of = name_of
        self._write = writer(descriptor)
        self._pipes = {}

    def open(self, slot):
        """Make the pipe of a new worker; return its writing end. Raises OSError."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if slot in self._pipes:  # a worker that could not be started
            self._forget(slot)
        self._pipes[slot] = _Pipe(reading, uptime())
        return writing

    def close(self):
        """In a child: close the pipes, which belong to the supervisor."""
        for slot in list(self._pipes):
            self._forget(slot)

    def _forget(self, slot):
        os.close(self._pipes.pop(slot).descriptor)

    def descriptors(self):
        """Return the descriptors of the pipes that may be read now."""
        now = uptime()
        return [pipe.descriptor for pipe in self._pipes.values() if pipe.due <= now]

    def pause(self, longest):
        """Return the time until another pipe may be read, in seconds, ``longest`` at most."""
        now = uptime()
        return min([longest, *(pipe.due - now for pipe in self._pipes.values() if pipe.due > now)])

    def forward(self, readable):
        """Pass on the output of workers; ``readable`` are the descriptors that have data."""
        now = uptime()
        for slot, pipe in list(self._pipes.items()):
            if pipe.due <= now and pipe.descriptor in readable:
                self._read(slot, pipe, now)
            if pipe.dropped and now - pipe.reported >= TELL_EVERY:
                self._tell(slot, pipe, now)

    def ended(self, slot):
        """Pass on the rest of the output of a dead worker, and close its pipe."""
        pipe = self._pipes.get(slot)
        if pipe is None:
            return
        self._read(slot, pipe, uptime())
        if pipe.rest:
            self._pass_on(slot, pipe, pipe.rest + b"\n")
        if pipe.dropped:
            self._tell(slot, pipe, uptime())
        if slot in self._pipes:
            self._forget(slot)

    def end(self):
        """Pass on the rest of the output of all workers, which are dead."""
        for slot in list(self._pipes):
            self.ended(slot)

    def _read(self, slot, pipe, now):
        try:
            data = os.read(pipe.descriptor, PIECE)
        except BlockingIOError:
            return
        if not data:  # all writers have closed the pipe
            self._forget(slot)
            return
        pipe.due = now + EVERY
        pipe.credit = min(pipe.credit + (now - pipe.counted) * RATE, RATE)
        pipe.counted = now
        lines, end, pipe.rest = (pipe.rest + data).rpartition(b"\n")
        if len(pipe.rest) > LONGEST_LINE:
            lines, end, pipe.rest = lines + end + pipe.rest, b"\n", b""
        if end:
            self._pass_on(slot, pipe, lines + end)

    def _pass_on(self, slot, pipe, data):
        source = {"worker": slot, "instance": self._name_of(slot)}
        passed = _that_fit(data, pipe.credit, len(marked(b"\n", **source)) - 1)
        written = 0
        if passed:
            output = marked(passed, **source)
            with contextlib.suppress(OSError):
                count = self._write(output) or len(output)
                pipe.credit -= count
                written = len(passed) * count // len(output)
        pipe.dropped += len(data) - written

    @staticmethod
    def _tell(slot, pipe, now):
        journal.prints_dropped(worker=slot, size=text.size(pipe.dropped))
        pipe.dropped, pipe.reported = 0, now


def _that_fit(data, credit, mark):
    """Return the first whole lines that take ``credit`` bytes at most with a ``mark`` before each.

    With it a line of a few bytes is hundreds in a log of JSON.
    """
    at = 0
    while at < len(data):
        end = data.index(b"\n", at) + 1
        credit -= mark + end - at
        if credit < 0:
            break
        at = end
    return data[:at]
