"""Stacks of workers: faulthandler writes them into a file of the worker when a signal comes.

The signal handler is C code, which runs while the process is in C code, too, even if that holds the
GIL. So it also finds a handler that hangs. Each thread gets the signal and writes its own stack:
faulthandler can also write those of all threads at once, but it crashes if another thread runs
meanwhile. Nothing is done for an attempt whose stack nobody wants.
"""

import contextlib
import faulthandler
import fcntl
import os
import signal
import tempfile
from typing import NamedTuple

# Nobody else uses this signal. Where there are no real-time signals, it is one that the system
# sends to programs in a terminal alone.
SIGNAL: int = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGWINCH
# The most of the stack of one thread that is kept, in bytes.
MOST = 16 * 1024
# The file of a worker has this descriptor or a higher one. If a handler closes descriptors that it
# does not know, and opens others, then none of these gets the number of the file.
_HIGH = 500

# Why a stack could not be taken: the attempt is paused and its worker stopped; the handler has
# taken the signal for itself; the worker did not answer in time.
STOPPED, TAKEN, SILENT = "stopped", "taken", "silent"


class Stack(NamedTuple):
    """The stacks of a worker's threads, and what the system tells of its process.

    ``text`` is what faulthandler has written, with the main thread first. ``problem`` says why the
    stack of the main thread is missing; "" if it is not. ``resident`` is in bytes, and ``seconds``
    is the processor time of the process since its start. ``busy`` is the share of one processor
    that it lately used; None if that was not measured.
    """

    text: str
    problem: str
    resident: int
    seconds: float
    busy: float | None = None


class StackFiles:
    """Unnamed files, one for each slot. The supervisor makes them before the first fork."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._descriptors: list[int] = []

    def open(self) -> None:
        """Make the files. Raises OSError."""
        self._descriptors = [_unnamed_file() for _ in range(self._slots)]

    def close(self) -> None:
        """Close the files in this process."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def answer(self, slot: int) -> None:
        """In the worker of this slot: answer the signal from now on, and close the other files."""
        own = self._descriptors[slot]
        try:
            high = fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        except OSError:  # a process may not have so many
            high = os.dup(own)
        self.close()
        _answering[:] = [high]
        _register(high)

    def clear(self, slot: int) -> None:
        """Empty the file of this slot."""
        os.ftruncate(self._descriptors[slot], 0)

    def read(self, slot: int) -> str:
        """Return the text in the file of this slot, or the first MOST bytes of it."""
        data = os.pread(self._descriptors[slot], MOST, 0)
        return data[: data.rfind(b"\n") + 1].decode("ascii", "replace")


# The descriptor into which this process answers, if it is a worker.
_answering: list[int] = []


def answer_again() -> None:
    """Answer the signal, even if a handler has changed what it does."""
    for descriptor in _answering:
        with contextlib.suppress(OSError, RuntimeError):
            # faulthandler does not look at the signal again while it is registered.
            faulthandler.unregister(SIGNAL)
            _register(descriptor)


def _register(descriptor: int) -> None:
    faulthandler.register(SIGNAL, file=descriptor, all_threads=False, chain=False)


def _unnamed_file() -> int:
    """Return the descriptor of an unnamed file, whose writers append to it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("atp-stack", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    # The supervisor empties the file, and the position of the worker would stay where it was.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor
