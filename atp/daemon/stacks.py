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
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from . import processes
from .processes import uptime

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


# Looks into workers: taking the stack of an attempt, when somebody asks or before a kill.
#
# The supervisor sends the signal to one thread after another, and goes on. It looks for the answers
# in its next turns, so a worker that does not answer holds up nobody.

# While the supervisor waits for an answer, it looks this often, in seconds.
LOOK_EVERY = 0.01
# The longest look, in seconds: if somebody asks, and if a kill waits for it.
ASKED_WITHIN, BEFORE_KILL = 1.0, 0.5
# The longest wait for a thread beside the main thread, in seconds, and for its first line, since it
# may have no frames of Python; and for how long a turn of the supervisor waits.
THREAD_WITHIN, FIRST_WITHIN, MOMENT = 0.2, 0.03, 0.002
# The time for which the use of the processor is measured if somebody asks, in seconds.
MEASURED_FOR = 0.25
# At most this many threads are asked.
MOST_THREADS = 20
_BIT = 1 << (SIGNAL - 1)


@dataclass(eq=False)
class Look:
    """A look at the worker ``pid``, as long as it runs the attempt ``key``.

    ``waiting`` are the threads that are to be asked; ``asked`` is the thread that has got the
    signal, or None. ``texts`` are the answers.
    """

    slot: int
    pid: int
    key: tuple[int, int]
    is_asked: bool
    problem: str
    waiting: list[int]
    # The processor time of the process when the look began; times on the uptime clock.
    seconds: float
    begun: float = field(default_factory=uptime, init=False)
    until: float = field(default=0.0, init=False)
    asked: int | None = field(default=None, init=False)
    asked_at: float = field(default=0.0, init=False)
    texts: list[str] = field(default_factory=list, init=False)
    # Whether a kill waits for the answer.
    is_hurried: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.until = self.begun + ASKED_WITHIN

    def hurry(self) -> None:
        """Note that a kill waits for the answer."""
        if not self.is_hurried:
            self.is_hurried = True
            self.until = min(self.until, uptime() + BEFORE_KILL)


class Looks:
    """Looks into the workers of one supervisor; ``files`` are the files into which they answer."""

    def __init__(self, files: StackFiles) -> None:
        self._files = files

    def begin(
        self, slot: int, pid: int, key: tuple[int, int], *, is_asked: bool, is_stopped: bool
    ) -> Look:
        """Begin to look at a worker. One that is stopped cannot answer."""
        problem = STOPPED if is_stopped else ""
        _, _, caught = processes.signal_masks(pid, pid)
        if not problem and processes.LINUX and not caught & _BIT:
            problem = TAKEN  # the signal would end the process
        waiting = [] if problem else processes.threads(pid)[:MOST_THREADS]
        seconds = processes.processor_seconds(pid)
        return Look(slot, pid, key, is_asked, problem, waiting, seconds)

    def is_over(self, look: Look) -> bool:
        """Go on with a look; tell whether all threads have answered or the time is over."""
        while self._has_answered(look):
            if not look.waiting:
                is_measured = uptime() >= look.begun + MEASURED_FOR
                return is_measured or look.is_hurried or not look.is_asked
            if uptime() >= look.until:
                return True
            self._ask_next(look)
        return uptime() >= look.until

    def _ask_next(self, look: Look) -> None:
        thread = look.waiting.pop(0)
        _, blocked, _ = processes.signal_masks(look.pid, thread)
        if blocked & _BIT:
            return  # many libraries block all signals in their threads
        self._files.clear(look.slot)
        processes.kill_thread(look.pid, thread, SIGNAL)
        look.asked, look.asked_at = thread, uptime()

    def _has_answered(self, look: Look) -> bool:
        """Take the answer of the thread that was asked, if there is one; tell whether to go on."""
        if look.asked is None:
            return True
        end = time.monotonic() + MOMENT
        is_main = look.asked == look.pid
        until = look.until if is_main else look.asked_at + THREAD_WITHIN
        while uptime() < until and self._is_writing(look):
            if time.monotonic() >= end:
                return False
            time.sleep(MOMENT / 10)
        # The first line is the heading of faulthandler.
        _, _, frames = self._files.read(look.slot).partition("\n")
        if frames:
            name = "Main thread" if is_main else f"Thread {look.asked}"
            look.texts.append(f"{name} (most recent call first):\n{frames}")
        look.asked = None
        return True

    def _is_writing(self, look: Look) -> bool:
        """Tell whether the thread that was asked has not written all."""
        if not processes.LINUX:
            return uptime() < look.asked_at + THREAD_WITHIN
        # The kernel blocks a signal in the thread while its handler runs.
        pending, blocked, _ = processes.signal_masks(look.pid, look.asked)  # type: ignore[arg-type]
        if (pending | blocked) & _BIT:
            return True
        # Just before the handler runs, the signal is neither pending nor blocked.
        is_main = look.asked == look.pid
        may_come = is_main or uptime() < look.asked_at + FIRST_WITHIN
        return may_come and not self._files.read(look.slot)

    def result(self, look: Look) -> Stack:
        """Return the answers, as far as they have come."""
        seconds, passed = processes.processor_seconds(look.pid), uptime() - look.begun
        has_main = any(text.startswith("Main") for text in look.texts)
        return Stack(
            text="\n".join(look.texts),
            problem="" if has_main else look.problem or SILENT,
            resident=processes.resident_bytes(look.pid),
            seconds=seconds,
            busy=(seconds - look.seconds) / passed if passed >= MEASURED_FOR else None,
        )
