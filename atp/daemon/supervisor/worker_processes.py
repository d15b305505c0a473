"""Workers as the supervisor sees them: deadlines, memory limits, kills, what they print."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ... import messages, text
from ...store.failures import MEMORY, TIMEOUT
from .. import descendants, log, processes, stacks
from ..descendants import LOOK_EVERY, MemoryWatch
from ..log import Style, json_line
from ..processes import uptime
from ..protocol import Key
from ..shared_memory import NEVER, NOTHING, Page, Running
from ..stacks import Looks, Stack, StackFiles
from ..stderr import writer
from ..worker import interruption

# Formatting the lines that workers have printed for the daemon's log.


def marked(data: bytes, *, worker: int, instance: UUID | None) -> bytes:
    """Return the log lines, as bytes, for the whole lines ``data`` that a worker has printed.

    Each line names its worker, so that nobody takes it for one of the daemon's own. Control
    characters are escaped. ``instance`` is the uuid of the Instance that the worker runs, or
    None.
    """
    lines = data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    source: dict[str, Any] = {"worker": worker, "instance": instance and str(instance)}
    tell = _printed_json if Style.is_json else _printed_text
    return "".join(tell(line.rstrip("\r"), source) for line in lines).encode()


def _printed_json(line: str, source: Mapping[str, Any]) -> str:
    said = {"fact": "printed", "message": line, **source}
    facts = {"time": datetime.now(UTC).isoformat(), "level": "INFO", "pid": os.getpid(), **said}
    return json_line(facts) + "\n"


def _printed_text(line: str, source: Mapping[str, Any]) -> str:
    name = f"worker {source['worker']} {source['instance'] or ''}".rstrip()
    return f"{name}: {text.one_line(line)}\n"


# Forwarding the output of workers to the daemon's standard error.
#
# Handlers, and the programs that they start, write into a pipe of their worker. The supervisor
# passes on whole lines, with the name of the worker. It never waits for a worker or for the
# reader of the daemon's log. So a log that nobody reads blocks no handler, and a handler that
# prints without end fills neither the log nor a processor.

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

    def __init__(self, name_of: Callable[[int], UUID | None], descriptor: int = 2) -> None:
        self._name_of = name_of
        self._write = writer(descriptor)
        self._pipes: dict[int, _Pipe] = {}

    def open(self, slot: int) -> int:
        """Make the pipe of a new worker; return its writing end. Raises OSError."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if slot in self._pipes:  # a worker that could not be started
            self._forget(slot)
        self._pipes[slot] = _Pipe(reading, uptime())
        return writing

    def close(self) -> None:
        """In a child: close the pipes, which belong to the supervisor."""
        for slot in list(self._pipes):
            self._forget(slot)

    def _forget(self, slot: int) -> None:
        os.close(self._pipes.pop(slot).descriptor)

    def descriptors(self) -> list[int]:
        """Return the descriptors of the pipes that may be read now."""
        now = uptime()
        return [pipe.descriptor for pipe in self._pipes.values() if pipe.due <= now]

    def pause(self, longest: float) -> float:
        """Return the time until another pipe may be read, in seconds, ``longest`` at most."""
        now = uptime()
        return min([longest, *(pipe.due - now for pipe in self._pipes.values() if pipe.due > now)])

    def forward(self, readable: Container[int]) -> None:
        """Pass on the output of workers; ``readable`` are the descriptors that have data."""
        now = uptime()
        for slot, pipe in list(self._pipes.items()):
            if pipe.due <= now and pipe.descriptor in readable:
                self._read(slot, pipe, now)
            if pipe.dropped and now - pipe.reported >= TELL_EVERY:
                self._tell(slot, pipe, now)

    def ended(self, slot: int) -> None:
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

    def end(self) -> None:
        """Pass on the rest of the output of all workers, which are dead."""
        for slot in list(self._pipes):
            self.ended(slot)

    def _read(self, slot: int, pipe: _Pipe, now: float) -> None:
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

    def _pass_on(self, slot: int, pipe: _Pipe, data: bytes) -> None:
        source: dict[str, Any] = {"worker": slot, "instance": self._name_of(slot)}
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
    def _tell(slot: int, pipe: _Pipe, now: float) -> None:
        log.prints_dropped(worker=slot, size=text.size(pipe.dropped))
        pipe.dropped, pipe.reported = 0, now


def _that_fit(data: bytes, credit: float, mark: int) -> bytes:
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


# The supervisor's view of its workers: processes, deadlines and kills.

# A worker that dies within this many seconds, and has run nothing, counts as unable to start.
QUICK_DEATH = 1.0
SLOWEST_RESTART = 10.0
# The longest wait for a worker to stop (SIGSTOP) before its page is read, in seconds.
STOP_WAIT = 0.1


def slots(size: int) -> int:
    """Return the most workers of a daemon: ``size`` at work, and as many paused ones."""
    return 2 * size


@dataclass
class WorkerProcess:
    """A worker process. ``why`` is the reason if this supervisor has killed it, else "".

    ``cause`` is that reason as data if the attempt exceeded a limit. ``frozen`` is the key of
    the attempt for which the worker is stopped, or None; ``left`` is the time that attempt
    has left, in seconds. ``look`` is the look at the attempt that goes on, or None; ``stack``
    is what the look before the kill has found, or None.
    """

    slot: int
    pid: int
    started: float = field(default_factory=uptime)
    why: str = ""
    cause: str = field(default="", init=False)
    frozen: tuple[int, int] | None = field(default=None, init=False)
    left: float = field(default=0.0, init=False)
    look: stacks.Look | None = field(default=None, init=False)
    stack: Stack | None = field(default=None, init=False)


class WorkerProcesses:
    """The worker processes, by slot."""

    def __init__(self, page: Page, size: int, stacks: StackFiles) -> None:
        self._page = page
        self._looks = Looks(stacks)
        self._size = size
        self._workers: dict[int, WorkerProcess] = {}
        self._memory = MemoryWatch()
        self._quick_deaths = 0
        self._next_start = 0.0

    def pids(self) -> list[int]:
        return [process.pid for process in self._workers.values()]

    def spared(self) -> set[int]:
        """Return the pids of processes that live on when all workers are killed."""
        return set()

    def sources(self) -> list[int]:
        """Return descriptors that tell of ends of workers, besides their deaths."""
        return []

    def over(self) -> Iterator[tuple[WorkerProcess, str, str]]:
        """Yield each worker that has ended without a death, how, and the cause as data."""
        yield from ()

    def add(self, process: WorkerProcess) -> None:
        self._workers[process.slot] = process

    def missing(self, spare: int = 0) -> list[int]:
        """Return the slots that need a worker now; ``spare`` workers more than usual are wanted."""
        if uptime() < self._next_start:
            return []
        free = [slot for slot in range(slots(self._size)) if slot not in self._workers]
        return free[: max(0, self._size + spare - len(self._workers))]

    def remove(self, pid: int, status: int) -> WorkerProcess | None:
        """Forget the worker of this pid, which ended with ``status``; return it, or None."""
        for slot, process in self._workers.items():
            if process.pid == pid:
                del self._workers[slot]
                self._slow_down(process, retired=status == 0)
                return process
        return None

    def _slow_down(self, process: WorkerProcess, retired: bool) -> None:
        """Make the pause before the next worker longer if workers die at once."""
        ran = retired or process.why or self._page.read(process.slot) is not None
        if ran or uptime() - process.started > QUICK_DEATH:
            self._quick_deaths = 0
            return
        self._quick_deaths += 1
        if self._quick_deaths > 2 * self._size + 2:
            pause = min(2.0 ** (self._quick_deaths - 2 * self._size - 3), SLOWEST_RESTART)
            self._next_start = uptime() + pause
            log.worker_failing(worker=process.slot, seconds=pause)

    def enforce_limits(self) -> float:
        """Kill the workers whose attempt has exceeded its time-out or its memory.

        A worker is asked for its stack first, so its kill takes several calls. Return the time in
        seconds after which this has to be called again, if the supervisor's next turn comes later.
        """
        now = uptime()
        limited: dict[int, tuple[WorkerProcess, Running]] = {}
        exceeding: set[int] = set()
        for process in list(self._workers.values()):
            running = self._page.read(process.slot)
            if running is None or process.why:
                continue
            if now >= running.deadline:
                exceeding.add(process.pid)
                self._kill(process, running.key, messages.timed_out(running.timeout), TIMEOUT)
            elif running.memory and processes.LINUX:
                limited[process.pid] = process, running
        for pid, why in self._memory.excesses({p: r for p, (_, r) in limited.items()}):
            exceeding.add(pid)
            process, running = limited[pid]
            self._kill(process, running.key, why, MEMORY)
        is_looking = False
        for process in self._workers.values():
            look = process.look
            if look is not None and not look.is_asked and process.pid not in exceeding:
                process.look = None  # the attempt has ended, or was given more time
            is_looking |= process.look is not None
        if is_looking:
            return stacks.LOOK_EVERY
        return LOOK_EVERY if limited else NEVER

    def _kill(self, process: WorkerProcess, key: Key, why: str, cause: str) -> None:
        """Kill a worker that runs the attempt ``key``, after it has answered with its stack.

        It has BEFORE_KILL seconds for that, from the first call of this.
        """
        look = process.look
        if look is None or look.key != key:
            look = process.look = self._begin_look(process, key, is_asked=False)
        look.hurry()
        if not self._looks.is_over(look):
            return
        # It has the memory of the process, which is freed by the kill.
        process.look, stack = None, self._looks.result(look)
        if self.kill_if_running(process.slot, process.pid, key, why, cause):
            process.stack = stack

    # Looks

    def look(self, slot: int, pid: int, key: Key) -> None:
        """Begin to look at a worker that runs the attempt, unless a look goes on."""
        process = self._find(slot, pid)
        if process is not None and process.look is None and self._runs(process, key):
            process.look = self._begin_look(process, key, is_asked=True)

    def looked(self) -> Iterator[tuple[int, int, Key, Stack]]:
        """Yield the slot, the pid, the attempt and the :class:`Stack` of each look that is over.

        These are the looks for which somebody has asked.
        """
        for process in self._workers.values():
            look = process.look
            if look is None or not look.is_asked or not self._looks.is_over(look):
                continue
            process.look = None
            if self._runs(process, look.key):
                yield process.slot, process.pid, look.key, self._looks.result(look)

    def _begin_look(self, process: WorkerProcess, key: Key, *, is_asked: bool) -> stacks.Look:
        is_stopped = process.frozen == key
        return self._looks.begin(
            process.slot, process.pid, key, is_asked=is_asked, is_stopped=is_stopped
        )

    def _runs(self, process: WorkerProcess, key: Key) -> bool:
        running = self._page.read(process.slot)
        return running is not None and running.key == key

    def _find(self, slot: int, pid: int) -> WorkerProcess | None:
        """Return the worker of this slot if it has this pid and was not killed; else None."""
        process = self._workers.get(slot)
        is_it = process is not None and process.pid == pid and not process.why
        return process if is_it else None

    def _stop_if_running(self, process: WorkerProcess, key: Key) -> bool:
        """Stop the worker if it runs the attempt ``key`` (or NOTHING); return whether it did.

        A worker that runs something else goes on.
        """
        processes.kill(process.pid, signal.SIGSTOP)
        wait_until_stopped(process.pid)
        running = self._page.read(process.slot)
        found = NOTHING if running is None else running.key
        if found == key:
            return True
        if found != process.frozen:
            # If the worker was frozen, somebody else has let it go on: the freeze is over.
            process.frozen = None
            processes.kill(process.pid, signal.SIGCONT)
        return False

    def kill_if_running(self, slot: int, pid: int, key: Key, why: str, cause: str = "") -> bool:
        """Kill a worker, but only if it still runs the attempt ``key``, or NOTHING.

        The worker is stopped first and its page is read again, so that a task which has begun
        meanwhile is not killed. Return whether the worker was killed.
        """
        process = self._find(slot, pid)
        if process is None or not self._stop_if_running(process, key):
            return False
        process.why, process.cause = why, cause
        processes.kill(pid)
        return True

    def freeze(self, slot: int, pid: int, key: Key) -> bool:
        """Stop a worker that runs the attempt, and its processes; return whether it did.

        The deadline of the attempt is suspended. A worker that holds locks in the queue goes
        on; the dispatcher asks again later.
        """
        process = self._find(slot, pid)
        if process is None or process.frozen == key or not self._stop_if_running(process, key):
            return False
        if self._page.is_writing(slot):
            processes.kill(pid, signal.SIGCONT)
            return False
        process.frozen, process.left = (
            key,
            self._page.read(slot).deadline - uptime(),  # type: ignore[union-attr]
        )
        self._page.put_off(slot, NEVER)
        self._signal_below(pid, signal.SIGSTOP)
        return True

    def thaw(self, slot: int, pid: int, key: Key) -> bool:
        """Let a stopped worker go on; return whether it was stopped."""
        process = self._find(slot, pid)
        if process is None or process.frozen is None:
            return False
        running = self._page.read(slot)
        if running is not None and running.key == process.frozen:
            self._page.put_off(slot, uptime() + process.left)
        process.frozen = None
        self._signal_below(pid, signal.SIGCONT)
        processes.kill(pid, signal.SIGCONT)
        return True

    @staticmethod
    def _signal_below(pid: int, number: int) -> None:
        for each in descendants.descendants([pid])[pid]:
            processes.kill(each.pid, number)

    def interrupt(self, slot: int, pid: int, key: Key) -> None:
        """Signal a worker, which raises Interrupted in the handler if it runs this attempt."""
        if self._find(slot, pid) is not None:
            processes.kill(pid, interruption.SIGNAL)

    def kill_all(self, why: str) -> None:
        """Kill every worker, whatever it runs."""
        for process in self._workers.values():
            process.why = process.why or why
            processes.kill(process.pid)


def wait_until_stopped(pid: int) -> None:
    """Wait until the process has stopped or died, for STOP_WAIT seconds at most.

    A process that is inside a system call may stop late.
    """
    deadline = time.monotonic() + STOP_WAIT
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            # WNOWAIT leaves a death for the one place that reaps.
            options = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, pid, options) is not None:
                return
        time.sleep(0.001)
