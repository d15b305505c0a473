"""The output of workers, on its way to the daemon's standard error.

Handlers, and the programs that they start, write into a pipe of their worker.
The supervisor passes on whole lines, each with its worker, and never waits: not for who reads the
daemon's log, and for no worker. So a log that nobody reads blocks no handler,
and one that prints without end fills neither the log nor a processor.
"""

import contextlib
import os
from dataclasses import dataclass, field

from ...words import wording
from .. import journal
from ..system.processes import uptime
from ..system.stderr import writer
from .output_lines import marked

# The output of a worker that is passed on, in bytes a second, and at once at most; the
# rest is dropped and counted.
RATE = 1024 * 1024
# A worker is read from this often, in seconds, and so much at a time: if it prints
# faster, it waits a little.
EVERY, PIECE = 0.004, 64 * 1024
# A line that is longer is passed on in parts.
LONGEST_LINE = 8 * 1024
# The amount that was dropped is logged this often, in seconds.
TELL_EVERY = 10.0


@dataclass
class _Pipe:
    """The reading end of what a worker writes into."""

    descriptor: int
    counted: float
    rest: bytes = field(default=b"", init=False)
    due: float = field(default=0.0, init=False)
    credit: float = field(default=RATE, init=False)
    dropped: int = field(default=0, init=False)
    reported: float = field(default=0.0, init=False)


class WorkerOutput:
    """The pipes of the workers, by slot; ``name_of(slot)`` is the Instance that one runs."""

    def __init__(self, name_of, descriptor=2):
        self._name_of = name_of
        self._write = writer(descriptor)
        self._pipes = {}

    def open(self, slot):
        """Make the pipe of a new worker; returns the end to write into. Raises OSError."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if slot in self._pipes:  # a worker that could not be started
            self._forget(slot)
        self._pipes[slot] = _Pipe(reading, uptime())
        return writing

    def close(self):
        """In a child: these are its parent's."""
        for slot in list(self._pipes):
            self._forget(slot)

    def _forget(self, slot):
        os.close(self._pipes.pop(slot).descriptor)

    def descriptors(self):
        """Return the pipes to be waited for now."""
        now = uptime()
        return [pipe.descriptor for pipe in self._pipes.values() if pipe.due <= now]

    def pause(self, longest):
        """For how long nothing has to be read, in seconds; ``longest`` at most."""
        now = uptime()
        return min([longest, *(pipe.due - now for pipe in self._pipes.values() if pipe.due > now)])

    def forward(self, readable):
        """Pass on what the workers have printed: of ``readable`` there is something to read."""
        now = uptime()
        for slot, pipe in list(self._pipes.items()):
            if pipe.due <= now and pipe.descriptor in readable:
                self._read(slot, pipe, now)
            if pipe.dropped and now - pipe.reported >= TELL_EVERY:
                self._tell(slot, pipe, now)

    def ended(self, slot):
        """The worker is dead: pass on the rest of its output."""
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
        """All workers are dead: pass on what they have printed last."""
        for slot in list(self._pipes):
            self.ended(slot)

    def _read(self, slot, pipe, now):
        try:
            data = os.read(pipe.descriptor, PIECE)
        except BlockingIOError:
            return
        if not data:  # all who could write have closed it
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
        if len(data) > pipe.credit:
            # Whole lines, as long as there is room for them.
            passed = data[: int(pipe.credit)].rpartition(b"\n")
            passed = b"".join(passed[:2])
        else:
            passed = data
        written = 0
        if passed:
            output = marked(passed, worker=slot, instance=self._name_of(slot))
            with contextlib.suppress(OSError):
                count = self._write(output) or len(output)
                written = len(passed) * count // len(output)
        pipe.credit -= written
        pipe.dropped += len(data) - written

    @staticmethod
    def _tell(slot, pipe, now):
        journal.prints_dropped(worker=slot, size=wording.size(pipe.dropped))
        pipe.dropped, pipe.reported = 0, now
