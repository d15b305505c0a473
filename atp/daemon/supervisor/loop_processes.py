"""Loops as the supervisor sees them: processes that run many attempts beside each other.

Each attempt has a place, which is a slot of the page. If a loop dies, or has to be killed, the page
tells which attempt is to blame. The others are handed back, and nothing is charged to them.
"""

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ... import messages
from ...store.failures import TIMEOUT
from .. import log, processes, stacks
from ..processes import uptime
from ..protocol import Key
from ..shared_memory import HEARD, NEVER, NOTHING, Page, Running
from ..stacks import Looks, Stack, StackFiles
from ..worker import interruption
from .worker_processes import QUICK_DEATH, SLOWEST_RESTART, wait_until_stopped

# A step that has run for this long, in seconds, is to blame if another attempt of its loop could
# not end in time; the second figure is for an attempt that could not even be cancelled.
BLOCKS_AFTER, BLOCKS_AT_ONCE = 1.0, 0.25


@dataclass
class LoopProcess:
    """The process of a loop. ``why`` is the reason if this supervisor has killed it, else "".

    ``guilty`` is the place of the attempt that is to blame for the kill, or None, and ``cause`` is
    that reason as data.
    """

    number: int
    pid: int
    slots: Sequence[int]
    started: float = field(default_factory=uptime)
    why: str = field(default="", init=False)
    cause: str = field(default="", init=False)
    guilty: int | None = field(default=None, init=False)
    look: stacks.Look | None = field(default=None, init=False)
    stack: Stack | None = field(default=None, init=False)


class PlaceEnd(NamedTuple):
    """What a dead loop has left at one of its places; ``running`` is the attempt, or None.

    ``beside``: the attempt is not to blame.
    """

    slot: int
    running: Running | None
    why: str
    cause: str
    stack: Stack | None
    beside: bool


class LoopProcesses:
    """The loops of a daemon: ``count`` of them, each with ``size`` places.

    ``first`` is the slot of the first place.
    """

    def __init__(
        self, page: Page, stack_files: StackFiles, first: int, count: int, size: int
    ) -> None:
        self._page = page
        self._looks = Looks(stack_files)
        self._first = first
        self._count, self._size = count, size
        self._loops: dict[int, LoopProcess] = {}
        self._quick_deaths, self._next_start = 0, 0.0

    def has(self, slot: int) -> bool:
        """Tell whether a slot is a place of a loop."""
        return slot >= self._first

    def pids(self) -> list[int]:
        return [loop.pid for loop in self._loops.values()]

    def slots_of(self, number: int) -> range:
        """Return the places of the loop of this number."""
        begin = self._first + number * self._size
        return range(begin, begin + self._size)

    def stack_slot(self, number: int) -> int:
        """Return the number of the stack file of a loop."""
        return self._first + number

    def missing(self) -> list[int]:
        """Return the numbers of the loops that have to be started now."""
        if uptime() < self._next_start:
            return []
        return [number for number in range(self._count) if number not in self._loops]

    def add(self, number: int, pid: int) -> None:
        self._loops[number] = LoopProcess(number, pid, self.slots_of(number))

    def remove(self, pid: int, status: int) -> LoopProcess | None:
        """Forget the loop of this pid, which ended with ``status``; return it, or None."""
        for number, loop in self._loops.items():
            if loop.pid == pid:
                del self._loops[number]
                self._slow_down(loop, retired=status == 0)
                return loop
        return None

    def _slow_down(self, loop: LoopProcess, *, retired: bool) -> None:
        """Make the pause before the next loop longer if loops die at once."""
        ran = retired or loop.why or any(self._running(loop))
        if ran or uptime() - loop.started > QUICK_DEATH:
            self._quick_deaths = 0
            return
        self._quick_deaths += 1
        pause = min(2.0 ** (self._quick_deaths - 3), SLOWEST_RESTART)
        self._next_start = uptime() + pause
        log.loop_failing(loop=loop.number, seconds=pause)

    def _running(self, loop: LoopProcess) -> Iterator[tuple[int, Running]]:
        for slot in loop.slots:
            running = self._page.read(slot)
            if running is not None:
                yield slot, running

    def ends(self, loop: LoopProcess, status: int) -> Iterator[PlaceEnd]:
        """Yield what a loop that ended with ``status`` has left at each of its places."""
        how, cause = processes.describe_status(status), processes.cause_of(status)
        blamed = self._blamed(loop)
        # The Instance that is to blame, if there is only one.
        guilty = str(self._page.name_of(blamed[0]) or "") if len(blamed) == 1 else ""
        ran = [slot for slot, _ in self._running(loop) if slot in blamed]
        died = messages.loop_died(how) if len(ran) > 1 else ""
        for slot in loop.slots:
            running = self._page.read(slot)
            self._page.leave(slot)
            if slot in blamed:
                stack = loop.stack if slot == loop.guilty else None
                yield PlaceEnd(slot, running, loop.why or died, loop.cause or cause, stack, False)
            else:
                why = messages.loop_ended(loop.why or messages.worker_died(how), guilty)
                yield PlaceEnd(slot, running, why, "", None, True)

    def _blamed(self, loop: LoopProcess) -> Sequence[int]:
        """Return the places of the attempts that may be to blame for the end of a loop."""
        if loop.guilty is not None:
            return [loop.guilty]
        step = self._page.step(loop.number)
        if step is not None and not loop.why:
            return [step.slot]
        in_threads = [slot for slot in loop.slots if self._page.calls(slot)]
        # It was killed as a whole, or died while nobody ran: each may be to blame.
        return in_threads if in_threads and not loop.why else loop.slots

    # Limits and kills

    def enforce_limits(self) -> float:
        """Kill the loops in which an attempt has not ended in time, after a look at their stacks.

        Return the time in seconds after which this has to be called again, if the supervisor's next
        turn comes later.
        """
        now = uptime()
        is_looking = False
        for loop in list(self._loops.values()):
            if loop.why:
                continue
            late = [(slot, each) for slot, each in self._running(loop) if now >= each.deadline]
            if not late:
                loop.look = None
                continue
            slot, running = late[0]
            if loop.look is None:
                loop.look = self._looks.begin(
                    self.stack_slot(loop.number),
                    loop.pid,
                    running.key,
                    is_asked=False,
                    is_stopped=False,
                )
            loop.look.hurry()
            if self._looks.is_over(loop.look):
                look, loop.look = loop.look, None
                why = messages.timed_out(running.timeout)
                self._kill(loop, slot, running.key, why, TIMEOUT, self._looks.result(look))
            is_looking = is_looking or loop.look is not None
        return stacks.LOOK_EVERY if is_looking else NEVER

    def kill_if_running(self, slot: int, pid: int, key: Key, why: str, cause: str = "") -> bool:
        """Kill the loop if this place runs the attempt ``key``; return whether it was killed.

        With NOTHING as the key, kill the loop only if none of its places runs an attempt.
        """
        loop = self._find(slot, pid)
        if loop is None:
            return False
        if key != NOTHING:
            return self._kill(loop, slot, key, why, cause, None)
        with self._stopped(loop):
            if any(self._running(loop)):
                return False
            loop.why = why
            processes.kill(loop.pid)
        return True

    def _kill(
        self, loop: LoopProcess, slot: int, key: Key, why: str, cause: str, stack: Stack | None
    ) -> bool:
        """Kill a loop, but only if the place still runs the attempt; note who is to blame."""
        with self._stopped(loop):
            running = self._page.read(slot)
            if running is None or running.key != key:
                return False
            loop.guilty, loop.why, loop.cause, loop.stack = slot, why, cause, stack
            has_heard = self._page.cut(slot) == HEARD
            step = self._page.step(loop.number)
            blocked = 0.0 if step is None else uptime() - step.since
            if step is None and not has_heard:
                # Nobody could be cancelled: a callback blocks the loop.
                loop.guilty, loop.why = None, messages.loop_blocked_by_callback()
            elif (
                step is not None
                and step.slot != slot
                and blocked >= (BLOCKS_AFTER if has_heard else BLOCKS_AT_ONCE)
            ):
                # The attempt could not end, since another one kept the loop from running.
                loop.guilty, loop.cause = step.slot, TIMEOUT
                loop.why = messages.loop_blocked(blocked)
            processes.kill(loop.pid)
        return True

    @contextlib.contextmanager
    def _stopped(self, loop: LoopProcess) -> Iterator[None]:
        """Stop the loop in the block; it goes on afterwards, unless it was killed."""
        processes.kill(loop.pid, signal.SIGSTOP)
        wait_until_stopped(loop.pid)
        try:
            yield
        finally:
            processes.kill(loop.pid, signal.SIGCONT)

    def _find(self, slot: int, pid: int) -> LoopProcess | None:
        """Return the loop of this place if it has this pid and was not killed; else None."""
        loop = self._loops.get((slot - self._first) // self._size)
        return loop if loop is not None and loop.pid == pid and not loop.why else None

    def interrupt(self, slot: int, pid: int, key: Key) -> None:
        """Signal a loop, which cancels those of its attempts that were asked to end."""
        if self._find(slot, pid) is not None:
            processes.kill(pid, interruption.SIGNAL)

    def kill_all(self, why: str) -> None:
        """Kill every loop, whatever it runs."""
        for loop in self._loops.values():
            loop.why = loop.why or why
            processes.kill(loop.pid)

    # What cannot be done with one attempt of several

    def look(self, slot: int, pid: int, key: Key) -> None:
        pass

    def freeze(self, slot: int, pid: int, key: Key) -> bool:
        return False

    def thaw(self, slot: int, pid: int, key: Key) -> bool:
        return False
