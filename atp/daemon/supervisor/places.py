"""The places of a follower: to the rest of the supervisor and to the dispatcher, each is a worker.

All have the follower's pid. A place whose attempt is to be killed ends once the follower says that
nothing of it is left. If the follower has died, it ends when the leave of its attempt is over:
until then the attempt may live on another host.
"""

from collections.abc import Iterator

from ... import messages
from ...store.failures import TIMEOUT
from .. import log, processes, protocol
from ..processes import uptime
from ..protocol import Channel, Closed, Key
from ..shared_memory import NEVER, NOTHING, Page, Tokens
from ..stacks import Stack, StackFiles
from .worker_processes import WorkerProcess, WorkerProcesses

# A follower that dies is started again after this pause, in seconds.
PAUSE = 1.0
# A follower that has not given up a place so long after its leave hangs, in seconds.
HANGS_AFTER = 5.0
# The state of an engine of which no follower has told.
UNKNOWN = protocol.EngineState("it was not looked for yet")


class Places(WorkerProcesses):
    """The places of the executor ``name``, and the follower's process."""

    def __init__(self, page: Page, size: int, stacks: StackFiles, name: str) -> None:
        super().__init__(page, size, stacks)
        self._name = name
        self._pid: int | None = None
        self._channel: Channel | None = None
        self._due = 0.0
        # What the follower knows of the engine, and whether the dispatcher has been told.
        self._engine = UNKNOWN
        self._is_told = False
        # The attempts whose time-out has passed, by slot.
        self._late: dict[int, Key] = {}
        # Until when the attempts of places live whose follower has died, by slot.
        self._dying: dict[int, float] = {}

    # The follower

    @property
    def wants_follower(self) -> bool:
        return self._pid is None and not self._dying and uptime() >= self._due

    @property
    def is_settled(self) -> bool:
        """Whether no attempt of an earlier dispatcher may still run."""
        return not any(process.why for process in self._workers.values()) and not self._dying

    def started(self, pid: int, channel: Channel) -> None:
        self._pid, self._channel = pid, channel
        self._due = uptime() + PAUSE
        log.follower_started(executor=self._name, pid=pid)

    def spared(self) -> set[int]:
        return set() if self._pid is None else {self._pid}

    def pids(self) -> list[int]:
        return [*self.spared()]

    def sources(self) -> list[int]:
        return [] if self._channel is None else [self._channel.fileno()]

    def missing(self, spare: int = 0) -> list[int]:
        if self._pid is None or self._engine.error:
            return []
        return [slot for slot in range(self._size) if slot not in self._workers]

    def open(self, slot: int, channel: Channel, tokens: Tokens) -> WorkerProcess | None:
        """Give the follower a place; return None if it does not read now."""
        assert self._channel is not None
        assert self._pid is not None
        self._page.leave(slot)
        self._page.give_leave(slot, 0.0)
        ends = [channel.fileno(), tokens.taking]
        try:
            self._channel.send(protocol.PlaceOpened(slot), ends, wait=False)
        except (BlockingIOError, Closed):
            return None
        process = WorkerProcess(slot, self._pid)
        self.add(process)
        return process

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    # Ends of places

    def remove(self, pid: int, status: int) -> WorkerProcess | None:
        """Note the death of the follower; its places end one by one, see :meth:`over`."""
        if pid == self._pid:
            log.follower_died(pid=pid, how=processes.describe_status(status))
            self.close()
            self._pid = self._channel = None
            self._learn(protocol.EngineState(messages.follower_died()))
            self._dying = {slot: self._page.leave_of(slot) for slot in self._workers}
        return None

    def over(self) -> Iterator[tuple[WorkerProcess, str, str]]:
        """Yield each place that has ended, how, and the cause as data."""
        yield from self._told()
        for slot, until in list(self._dying.items()):
            running = self._page.read(slot)
            if running is None or uptime() >= until:
                del self._dying[slot]
                process = self._workers.pop(slot)
                yield process, messages.follower_died(), process.cause

    def _told(self) -> Iterator[tuple[WorkerProcess, str, str]]:
        while self._channel is not None:
            try:
                message, _ = self._channel.receive(wait=False)
            except (BlockingIOError, Closed):
                return
            if isinstance(message, protocol.EngineState):
                self._learn(message)
                continue
            process = self._workers.pop(message.slot, None)
            if process is not None:
                yield process, message.how, message.cause

    # What the dispatcher is told

    def _learn(self, engine: protocol.EngineState) -> None:
        self._engine, self._is_told = engine, False

    def tell_again(self) -> None:
        """Tell the engine's state to the next dispatcher."""
        self._is_told = False

    def news(self) -> protocol.EngineState | None:
        """Return the engine's state if the dispatcher is to be told, and it is known."""
        if self._is_told or self._engine is UNKNOWN:
            return None
        self._is_told = True
        return self._engine

    # Limits

    def enforce_limits(self) -> float:
        """End the attempts that have exceeded their time-out, and of which nobody has told."""
        now = uptime()
        for process in list(self._workers.values()):
            running = self._page.read(process.slot)
            if running is None:
                continue
            if self._pid is not None and 0 < self._page.leave_of(process.slot) < now - HANGS_AFTER:
                processes.kill(self._pid)  # it would have ended the place
            elif now >= running.deadline and self._late.get(process.slot) != running.key:
                self._late[process.slot] = running.key
                why = messages.timed_out(running.timeout)
                self.kill_if_running(process.slot, process.pid, running.key, why, TIMEOUT)
        return NEVER

    def kill_if_running(self, slot: int, pid: int, key: Key, why: str, cause: str = "") -> bool:
        process = self._find(slot, pid)
        if process is None:
            return False
        if key == NOTHING:
            # It takes no tasks: the follower hangs.
            processes.kill(pid)
            return True
        if not self._runs(process, key):
            return False
        # The place tells the reason when it is over: the attempt may end by itself before.
        self._end(slot, key, why, cause)
        return True

    def _end(self, slot: int, key: Key, why: str, cause: str) -> None:
        if self._channel is not None:
            try:
                self._channel.send(protocol.EndPlace(slot, key, why, cause), wait=False)
            except (BlockingIOError, Closed):
                processes.kill(self._pid)  # type: ignore[arg-type]

    def kill_all(self, why: str) -> None:
        """End every attempt; their places are over when nothing of them is left."""
        for process in self._workers.values():
            process.why = process.why or why
            self._end(process.slot, NOTHING, why, "")

    # What cannot be done with an attempt elsewhere

    def look(self, slot: int, pid: int, key: Key) -> None:
        pass

    def looked(self) -> Iterator[tuple[int, int, Key, Stack]]:
        yield from ()

    def freeze(self, slot: int, pid: int, key: Key) -> bool:
        return False

    def thaw(self, slot: int, pid: int, key: Key) -> bool:
        return False

    def interrupt(self, slot: int, pid: int, key: Key) -> None:
        """Do nothing: the follower reads in the page what is asked of its attempts."""
