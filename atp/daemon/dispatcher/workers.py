"""The workers that have started, have died, or hang."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ... import messages
from ...operations.registry import registry
from ...states import Event
from ...store.values import Attempt
from .. import log, outcomes, protocol
from ..processes import uptime
from ..protocol import Channel, Key
from ..shared_memory import NOTHING, Page, Running, Tokens
from ..stacks import Stack
from .attempts import Attempts
from .pool import Pool, WorkerLink

if TYPE_CHECKING:
    from .core import Core
    from .dispatcher import Intake

# Changes of workers that the supervisor reports: started, died, stopped, going on.


class WorkerChanges:
    """The part of the dispatcher that applies the supervisor's reports to the pool.

    ``sessions`` are the pids of the living workers.
    """

    def __init__(self, core: "Core", attempts: Attempts, intake: "Intake") -> None:
        self._core = core
        self._attempts = attempts
        self._deaths = Deaths(core, attempts)
        self._intake = intake
        self.sessions: set[int] = set()
        self.on_message: dict[type, Callable[..., None]] = {
            protocol.WorkerStarted: self._add,
            protocol.WorkerDied: self._remove,
            protocol.Frozen: self._frozen,
            protocol.Thawed: self._thawed,
            protocol.StackTaken: self._stack_taken,
            protocol.EngineState: self._engine_told,
        }

    def _add(
        self, slot: int, pid: int, loop: int | None, channel: int, taking: int, giving: int
    ) -> None:
        channel, tokens = Channel.from_descriptor(channel), Tokens(taking, giving)
        link = WorkerLink(slot, pid, channel, tokens, self._core.page.ring(slot))
        link.is_starting = True
        # The last records of the slot's previous worker are of no use any more.
        link.ring.skip()
        self.sessions.add(pid)
        self._core.pool.add(link, loop)
        self._intake.add(link)
        # The daemon's row shows its workers from the start.
        self._core.timers.now("renew")

    def _find(self, slot: int, pid: int) -> WorkerLink | None:
        link: WorkerLink | None = self._core.pool.links.get(slot)
        return link if link is not None and link.pid == pid else None

    def _remove(
        self,
        slot: int,
        pid: int,
        how: str,
        why: str,
        running: Running | None,
        left: int,
        cause: str,
        stack: Stack | None,
        beside: bool,
    ) -> None:
        link = self._find(slot, pid)
        if link is None:
            return
        self._intake.remove(link, running)
        self._core.pool.remove(slot)
        self.sessions.discard(pid)
        why = why or messages.worker_died(how)
        key = running and running.key
        self._deaths.died(link, key, why, left, cause, stack, beside=beside)
        link.close()

    def _frozen(self, slot: int, pid: int, key: Key, at: float) -> None:
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.pausing.begun(link, key, at, 0, is_frozen=True)

    def _thawed(self, slot: int, pid: int, key: Key, at: float) -> None:
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.pausing.thawed(link, key, at)

    def _engine_told(self, *facts: Any) -> None:
        engine = protocol.EngineState(*facts)
        self._core.identity.engine = engine._asdict()
        self._core.capacity.learn(engine)
        self._attempts.hand_back_unplaceable()
        self._core.queue.call()
        self._core.timers.now("renew")

    def _stack_taken(self, slot: int, pid: int, key: Key, at: float, stack: Stack) -> None:
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.stacks.taken.append((link, key, at, stack))


# The deaths of workers: what becomes of the attempts that they had.


class Deaths:
    """The treatment of a worker's death.

    Its running attempt is lost, unless its end is known, or somebody had asked it to end. Its
    unstarted attempts go to other workers, or back to the queue if their start is recorded.
    """

    def __init__(self, core: "Core", attempts: Attempts) -> None:
        self._core = core
        self._attempts = attempts

    def died(
        self,
        link: WorkerLink,
        running: Key | None,
        why: str,
        left: int = 0,
        cause: str = "",
        stack: Stack | None = None,
        *,
        beside: bool = False,
    ) -> None:
        """Handle the death of a worker; ``running`` is the key of the attempt it ran, or None.

        ``why`` is the reason of the death, and ``cause`` is the reason as data. ``left`` is the
        number of the worker's own processes that were killed with it. ``stack`` is the stack of
        the attempt before the worker was killed, or None. ``beside``: the attempt is handed back,
        since another one of its loop is to blame.
        """
        attempts = [*link.assigned.values()] + ([link.reserved] if link.reserved else [])
        ran = link.assigned.get(running) or link.revoked.get(running)  # type: ignore[arg-type]
        if ran is not None:
            self._attempts.usage.ended(ran, ran.run_time(uptime()))
        again: list[Attempt] = []
        for attempt in attempts:
            if attempt.key == running and beside and attempt.ask != Event.FAIL:
                if not attempt.start_known:
                    self._attempts.start(attempt, link, attempt.started)
                self._attempts.release(attempt, why, link)
            elif attempt.key == running:
                if stack is not None and not attempt.concluded:
                    self._attempts.stacks.record(link, attempt, stack, detail=cause)
                self._lose(attempt, link, why, left, cause)
            elif attempt.start_known:
                # Its start is recorded, so it cannot simply be handed to another worker.
                self._attempts.release(attempt, messages.worker_died_early())
            else:
                again.append(attempt)
        if again:
            log.taken_back(worker=link.slot, count=len(again))
        self._core.pool.put_back(again)
        self._attempts.hand_back_unplaceable()
        self._core.queue.free(loops=link.loop is not None)
        if self._attempts.stopping:
            self._attempts.hand_back_unstarted(self._attempts.stopping)

    def _lose(self, attempt: Attempt, link: WorkerLink, why: str, left: int, cause: str) -> None:
        attempts = self._attempts
        attempts.ending.forget(attempt.key)
        if not attempt.start_known:
            attempts.start(attempt, link, attempt.started)
        if attempt.concluded:
            self._core.counters.finished(attempt)
            return
        if registry.is_transactional(attempt.type):
            # The worker may have committed the end: the fence tells when the loss is recorded.
            self._core.unrecorded.doubt(attempt.key)
            attempts.undecided[attempt.key] = attempt
        if attempt.ask == Event.RELEASE:
            attempts.release(attempt, attempt.why, link)
            return
        if attempt.ask == Event.FAIL:
            attempts.pausing.over(attempt, link, time.time())
        facts: dict[str, Any] = {"time": attempts.times.now(attempt), "who": attempts.who(link)}
        facts["of"] = attempt
        if attempt.ask == Event.FAIL:
            message = outcomes.killed(attempt.why, why, attempt, left)
            move = outcomes.cancelled(message, attempt, **facts)
        else:
            move = outcomes.lost(why, attempt, detail=cause, **facts)
        self._core.unrecorded.add(move)
        if attempt.key not in attempts.undecided:
            self._core.counters.lost_worker(attempt, move)


# Stuck workers: workers that get tasks and start none.
#
# A thread that a handler has left behind may hold the GIL, or somebody has stopped the process.
# Between two attempts no time-out runs. The unstarted tasks of such a worker go to others, and
# no attempt counts as lost. The worker gets no more tasks; if it does not recover, it is
# replaced.

# The times, in seconds, after which its unstarted tasks are taken back, and after which it is
# killed. The clock stands still while the host is suspended.
TAKE_BACK_AFTER, KILL_AFTER = 1.0, 10.0
# A worker that is not ready within this many seconds is replaced: a lock may have been held when
# it was forked.
READY_WITHIN = 600.0
_STARTING = "starting"
# The serial number of the task that a worker should start next (None if it is stuck, _STARTING if
# it is not ready yet), and since when.
_Since: TypeAlias = tuple[int | str | None, float]


class StuckWorkers:
    """The watcher of a pool's workers.

    ``kill(link, key, why)`` asks the supervisor to kill a worker if it runs this attempt.
    """

    def __init__(
        self, pool: Pool, page: Page, kill: Callable[[WorkerLink, Key, str], None]
    ) -> None:
        self._pool = pool
        self._page = page
        self._kill = kill
        # By worker: the serial number of the task that it should start next, and since when.
        self._since: dict[tuple[int, int], _Since] = {}

    def turn(self) -> None:
        """Look at every worker that has tasks, or is known to be stuck."""
        now = time.monotonic()
        seen: dict[tuple[int, int], _Since] = {}
        before: _Since | None
        for link in self._pool.links.values():
            # All places of a follower have its pid.
            worker = link.slot, link.pid
            if link.is_starting:
                before = self._since.get(worker, (_STARTING, now))
                seen[worker] = before
                if now - before[1] >= READY_WITHIN:
                    self._kill(link, NOTHING, messages.worker_stuck(is_ready=False))
                    seen[worker] = _STARTING, now
                continue
            if not link.is_stuck and (not link.assigned or link.ring.has_news):
                continue
            running = self._page.read(link.slot)
            if running is not None and (
                running.key in link.assigned or running.key in link.revoked
            ):
                link.is_stuck = False
                continue
            # An attempt in the page that is not assigned has ended: the worker has not cleared it.
            key = NOTHING if running is None else running.key
            serial = None if link.is_stuck else link.first.serial
            before = self._since.get(worker)
            seen[worker] = before if before and before[0] == serial else (serial, now)
            if self._act(link, key, now - seen[worker][1]):
                seen[worker] = serial, now
        self._since = seen

    def _act(self, link: WorkerLink, key: Key, waited: float) -> bool:
        """Take tasks back or kill the worker, by the seconds ``waited``; tell whether it killed."""
        if link.is_stuck and waited >= KILL_AFTER - TAKE_BACK_AFTER:
            self._kill(link, key, messages.worker_stuck())
            return True
        if not link.is_stuck and waited >= TAKE_BACK_AFTER:
            # A task whose token the worker has taken stays with it.
            link.is_stuck = True
            self._pool.put_back(self._pool.unstarted(link))
        return False
