"""Looks into workers: taking the stack of an attempt, when somebody asks or before a kill.

The supervisor sends the signal to one thread after another, and goes on. It looks for the answers
in its next turns, so a worker that does not answer holds up nobody.
"""

import time
from dataclasses import dataclass, field

from .. import processes
from ..processes import uptime
from ..stacks import SIGNAL, SILENT, STOPPED, TAKEN, Stack, StackFiles

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
