"""The workers, and the Tasks that they get: who gets how many."""

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...store.values import Attempt
from .. import log
from ..processes import uptime
from ..protocol import Channel, Closed, Key, packed
from ..shared_memory import NEVER, Page, Ring, Step, Tokens

# In the hints of this module ``| Any`` stands for ``| None`` where other facts often exclude the
# None, and mypy does not see that.

# Handing out waiting Tasks: choosing the worker, and the number of Tasks that it gets.

# The most tasks that go to a worker process at a time; then the next has its turn. A place of a
# loop gets what is expected to be done within TOGETHER, in seconds.
PIECE, TOGETHER = 16, 0.001
# The number of tasks of usual size that fit into one packet.
PACKET = 128


# The load of a worker in seconds, its order in the pool, and the worker.
_Load = tuple[float, int, "WorkerLink"]


class HandOut:
    """The part of the pool that sends the waiting Tasks of a side to its workers."""

    def __init__(self, pool: "Pool", side: "Side", pace: "Pace") -> None:
        self._pool = pool
        self._side = side
        self._pace = pace

    def hand_out(self) -> list[Attempt]:
        """Send waiting Tasks to the workers when one of them has little left to do.

        Each worker gets enough for a while, since each message and each claim takes time.
        Return the Tasks that were only reserved for a worker. A Task is reserved if its
        Instance was lost before, or if its Type is transactional (the worker records its end).
        It runs alone, and only after its start is recorded.
        """
        waiting = self._side.waiting
        if not waiting or not self._side.has_low():
            return []
        now, reserved = uptime(), []
        given: defaultdict[WorkerLink, list[Attempt]] = defaultdict(list)
        # The workers by their loads. Of equal ones, the first in the pool comes first.
        loads = [
            (load, order, link)
            for order, link in enumerate(self._side.links.values())
            if (load := self._side.load(link, now)) < AHEAD
        ]
        heapq.heapify(loads)
        while waiting:
            attempt = waiting[0]
            found = self._pop_fitting(loads, attempt)
            if found is None:
                break
            load, order, link = found
            if attempt.alone and not attempt.start_known:
                link.reserved = waiting.popleft()
                reserved.append(attempt)
                continue
            load = self._take_piece(link, load, now, given[link])
            if load < AHEAD:
                heapq.heappush(loads, (load, order, link))
        self._send(given)
        return reserved

    def _pop_fitting(self, loads: "list[_Load]", attempt: Attempt) -> "_Load | None":
        """Pop the worker that would start this Task first; None if none would soon."""
        unfit, found = [], None
        while loads and found is None:
            each = heapq.heappop(loads)
            if self._fits(each[2], attempt):
                found = each
            else:
                unfit.append(each)
        for each in unfit:
            heapq.heappush(loads, each)
        return found

    @staticmethod
    def _fits(link: "WorkerLink", attempt: Attempt) -> bool:
        """Tell whether a worker with little to do may have this Task after those that it has."""
        if link.loop is not None and not link.loop.takes(
            attempt.type, is_ahead=bool(link.assigned)
        ):
            return False
        if not link.assigned:
            return link.reserved is None
        return len(link.assigned) < MAX_AHEAD and not attempt.single and not link.first.single

    def _take_piece(
        self, link: "WorkerLink", load: float, now: float, given: list[Attempt]
    ) -> float:
        """Assign the next waiting Tasks to a worker, as long as they fit; return its load then."""
        waiting = self._side.waiting
        for _ in range(self._size_of_piece(link)):
            attempt = waiting.popleft()
            self._add(link, attempt, now)
            given.append(attempt)
            load += attempt.expected
            # These checks equal _fits(), since no task before this one is alone.
            if not waiting or attempt.single or waiting[0].single:
                break
            if load >= AHEAD or len(link.assigned) >= MAX_AHEAD:
                break
            if link.loop is not None and not link.loop.takes(waiting[0].type, is_ahead=True):
                break
        return load

    def _size_of_piece(self, link: "WorkerLink") -> int:
        """Return how many of the waiting Tasks a worker gets before the next one has its turn."""
        waiting = self._side.waiting
        if link.loop is None:
            return max(1, min(PIECE, len(waiting) // (2 * len(self._side.links))))
        # A loop waits best at many places, but does what is short at few of them.
        return max(1, int(TOGETHER / self._pace.expected(waiting[0].type)))

    def _add(self, link: "WorkerLink", attempt: Attempt, now: float) -> None:
        attempt.since = now
        attempt.expected = self._pace.expected(attempt.type)
        link.add(attempt)

    def _send(self, given: "Mapping[WorkerLink, Sequence[Attempt]]") -> None:
        """Send tasks to their workers, and a start token for each."""
        for link, piece in given.items():
            link.tokens.give([attempt.serial for attempt in piece])
        if self._side is self._pool.loops:
            self._send_to_loops(given)
            return
        for link, piece in given.items():
            self._send_packets([link], link.channel, packed(piece))

    def _send_to_loops(self, given: "Mapping[WorkerLink, Sequence[Attempt]]") -> None:
        """Send each loop the tasks of all its places, through the channel of one of them.

        It is the same place each time, since a place has to get its tasks in order.
        """
        by_loop: defaultdict[LoopState, list[WorkerLink]] = defaultdict(list)
        for link in given:
            by_loop[link.loop].append(link)  # type: ignore[index]
        for loop, links in by_loop.items():
            tasks = [(link.slot, task) for link in links for task in packed(given[link])]
            self._send_packets(links, loop.channel, tasks)

    def _send_packets(
        self, links: "Iterable[WorkerLink]", channel: Channel, tasks: Sequence[Any]
    ) -> None:
        try:
            for first in range(0, len(tasks), PACKET):
                channel.send(tasks[first : first + PACKET], wait=False)
        except (BlockingIOError, Closed):
            # The worker does not read, or is dead. Take the tokens back, so it starts no task.
            for link in links:
                self._pool.put_back(self._pool.unstarted(link))

    def give(self, link: "WorkerLink", attempt: Attempt) -> None:
        """Give one Task to a worker."""
        self._add(link, attempt, uptime())
        self._send({link: [attempt]})


# The recent durations of tasks and claims, which decide how many tasks a worker gets ahead.

# A worker gets tasks as long as all its tasks are expected to be done within this many
# seconds: no task waits behind others for longer. So does a loop.
AHEAD = 0.05
# In seconds: a worker gets more when its work is less than MARGIN plus twice the time of recent
# claims, LOW at most. The later this happens, the more Tasks one claim takes, and the less it
# costs for each.
LOW, MARGIN = 0.6 * AHEAD, 0.005
MAX_AHEAD = 512
# The expected time of a Type that has never run here: no task waits behind one of this Type.
UNKNOWN = 1e6
# The weight of the last measurement in the means.
_WEIGHT = 0.2
_SHORTEST = 1e-5


class Pace:
    """Moving means, in seconds, of the run times (by Type, and over all Types) and of claims."""

    def __init__(self) -> None:
        self._by_type: dict[str, float] = {}
        self._overall: float | Any = None
        self._claim: float | None = None

    @property
    def low(self) -> float:
        """The seconds of work below which a worker gets more tasks."""
        return LOW if self._claim is None else min(LOW, MARGIN + 2 * self._claim)

    def measure_claim(self, seconds: float) -> None:
        """Note the duration of a claim, up to handing out; a long one replaces the mean."""
        self._claim = max(seconds, _mean(self._claim, seconds))

    def measure(self, type: str, seconds: float) -> None:
        """Note the duration of a task of this Type."""
        before = self._by_type.get(type)
        if before is None:
            self._by_type[type] = seconds
            self._overall = _mean(self._overall, seconds)
        else:  # the usual case, without a call: this is done for every task
            self._by_type[type] = before + _WEIGHT * (seconds - before)
            self._overall += _WEIGHT * (seconds - self._overall)

    def slow_down(self) -> None:
        """Claim for free workers only, since waiting Tasks take longer than recent ones did."""
        self._overall = AHEAD

    def expected(self, type: str) -> float:
        """Return the expected duration of a task of this Type, in seconds."""
        expected = self._by_type.get(type, UNKNOWN)
        return expected if expected > _SHORTEST else _SHORTEST

    def room(self, load: float) -> int:
        """Return the number of tasks that a worker with ``load`` seconds of work may get.

        It is at least one for a worker that is free or will soon be free.
        """
        if load > AHEAD:
            return 0
        if self._overall is None:
            return 0 if load else 1
        return max(1, min(MAX_AHEAD, int((AHEAD - load) / max(self._overall, _SHORTEST))))


def _mean(before: float | None, seconds: float) -> float:
    return seconds if before is None else (1 - _WEIGHT) * before + _WEIGHT * seconds


# The pool: the workers with the tasks assigned to each, and the Tasks that wait for one.
#
# It has two sides: the worker processes, and the places of the loops. An attempt goes to the side
# of its Type.

# A claimed Task that no worker could start for this long is handed back, so
# that another daemon can have it.
PATIENCE = 1.0
# A task that its worker has not started within this many seconds goes to a free worker.
STEAL_AFTER = 0.01
# The dispatcher notices within this many seconds that a worker has started a task.
LOOK_AFTER = 0.02
# A loop in which one step takes longer than this, in seconds, gets no more tasks until it is over.
BLOCKED_AFTER = 0.05


class Room(NamedTuple):
    """How many Tasks the workers of a side could start soon, and how many of these at once."""

    limit: int
    free: int


class Side:
    """Workers of one kind, and the claimed Tasks that wait for one of them."""

    def __init__(self, pool: "Pool", pace: Pace) -> None:
        self.links: dict[int, WorkerLink] = {}
        self.waiting: deque[Attempt] = deque()
        self._pace = pace
        self._hand_out = HandOut(pool, self, pace)

    # Claiming

    def load(self, link: "WorkerLink", now: float) -> float:
        """Return the time that a worker is expected to need for its tasks, in seconds."""
        if link.reserved is not None or not link.takes_tasks:
            return float("inf")
        running = link.running
        if running is None:
            return link.expected
        passed = now - running.started
        if passed > running.expected + AHEAD or running.pause is not None:
            return float("inf")  # the task takes longer than expected, or is paused
        return max(link.expected - passed, 1e-6)

    def room(self, behind: int) -> Room:
        """Return how many Tasks the workers could start soon, beyond those they have.

        ``behind`` is the number of unrecorded changes beyond the next batch. Each counts as an
        assigned Task, since running more is no use if it cannot be recorded. The result is at
        least 1 if a worker has nothing.
        """
        now, low = uptime(), self._pace.low
        room = number = 0
        for link in self.links.values():
            load = self.load(link, now)
            room += min(self._pace.room(load), MAX_AHEAD - len(link.assigned))
            number += load < low
        if not number or self.waiting:
            return Room(0, 0)
        return Room(max(int(self.has_free()), room - behind), number)

    def is_low(self) -> bool:
        """Tell whether some worker has little left to do, and no Task waits."""
        return not self.waiting and self.has_low()

    def has_free(self) -> bool:
        """Tell whether some worker has nothing to do, and no Task waits."""
        return not self.waiting and any(link.is_free for link in self.links.values())

    def has_low(self) -> bool:
        """Tell whether some worker has little left to do."""
        now, low = uptime(), self._pace.low
        return any(self.load(link, now) < low for link in self.links.values())

    # Handing out

    def hand_out(self) -> list[Attempt]:
        """Give waiting Tasks to the workers; see :meth:`.HandOut.hand_out`."""
        return self._hand_out.hand_out()

    def give(self, link: "WorkerLink", attempt: Attempt) -> None:
        """Give one Task to a worker."""
        self._hand_out.give(link, attempt)

    def put_back(self, attempts: Collection[Attempt]) -> None:
        """Let Tasks that their worker has not started wait again; they keep their place."""
        self.waiting = deque(sorted([*attempts, *self.waiting], key=lambda each: each.place))

    def pause(self, longest: float) -> float:
        """Return the time until a worker has to be looked at, in seconds, ``longest`` at most."""
        longest = self._pause(self.links.values(), longest)
        return min(longest, AHEAD) if self.waiting else longest

    def _pause(self, links: "Iterable[WorkerLink]", longest: float) -> float:
        now = uptime()
        for link in links:
            first = link.first
            if first is None:
                continue
            if not first.start_known or len(link.assigned) > 1:
                longest = min(longest, LOOK_AFTER)
            until_low = self.load(link, now) - self._pace.low
            if until_low > 0:
                longest = min(longest, until_low)
        return longest


class LoopSide(Side):
    """The places of the ``loops``, which are given by their pids.

    Of the places of a loop, only one runs at any moment. What they may have ahead in all is
    bounded by the time that the loop lately took for a task.
    """

    def __init__(self, pool: "Pool", pace: Pace) -> None:
        super().__init__(pool, pace)
        self.loops: dict[int, LoopState] = {}

    def room(self, behind: int) -> Room:
        """Return what :meth:`.Side.room` does."""
        now, low = uptime(), self._pace.low
        limit = number = 0
        for loop in self._low_loops():
            room = free = 0
            for link in loop.links.values():
                load = self.load(link, now)
                room += min(self._pace.room(load), MAX_AHEAD - len(link.assigned))
                number += load < low
                free += link.is_free
            limit += min(room, free + loop.room)
        if not number or self.waiting:
            return Room(0, 0)
        return Room(max(int(self.has_free()), limit - behind), number)

    def has_low(self) -> bool:
        """Tell whether some loop has little left to do."""
        now, low = uptime(), self._pace.low
        return any(
            self.load(link, now) < low for loop in self._low_loops() for link in loop.links.values()
        )

    def _low_loops(self) -> "list[LoopState]":
        return [loop for loop in self.loops.values() if loop.load < self._pace.low]

    def pause(self, longest: float) -> float:
        """Return the time until a place has to be looked at, in seconds, ``longest`` at most."""
        for loop in self.loops.values():
            if loop.has_ahead:
                until_low = loop.load - self._pace.low
                longest = min(longest, LOOK_AFTER, until_low if until_low > 0 else longest)
            else:
                longest = self._pause(loop.links.values(), longest)
            if loop.blocked_by is not None:
                longest = min(longest, BLOCKED_AFTER)
        return min(longest, AHEAD) if self.waiting else longest


class Pool:
    """The workers, and the claimed Tasks that wait for one.

    ``concurrency`` is the number of attempts that one loop runs at a time, by Type. The other Types
    go to ``processes``.
    """

    def __init__(
        self, transactional: Iterable[str] = (), concurrency: Mapping[str, int] | None = None
    ) -> None:
        self._transactional = frozenset(transactional)
        self.concurrency = concurrency or {}
        # The Types that call a downstream: a worker gets one Task of them at a time.
        self.single: Collection[str] = ()
        self.links: dict[int, WorkerLink] = {}
        self._pace = Pace()
        self.processes, self.loops = Side(self, self._pace), LoopSide(self, self._pace)
        # To look at both takes time, and most daemons have no loops.
        self._sides: tuple[Side, ...] = (self.processes,)
        if self.concurrency:
            self._sides = self.processes, self.loops
        self._put = 0

    def _side(self, attempt: Attempt) -> Side:
        if attempt.type in self.concurrency:
            return self.loops
        return self.processes

    # The Tasks and the workers

    def __len__(self) -> int:
        """Return the number of Tasks that this daemon holds."""
        return self.count_waiting() + sum(
            len(link.assigned) + (link.reserved is not None) for link in self.links.values()
        )

    def attempts(self) -> Iterator[Attempt]:
        """Yield every Task that this daemon holds and that has not ended."""
        yield from self.waiting()
        for link in self.links.values():
            yield from link.assigned.values()
            if link.reserved is not None:
                yield link.reserved

    def waiting(self) -> Iterator[Attempt]:
        """Yield the claimed Tasks that wait for a worker."""
        for side in self._sides:
            yield from side.waiting

    def count_waiting(self) -> int:
        """Return the number of claimed Tasks that wait for a worker."""
        return sum(len(side.waiting) for side in self._sides)

    def find(self, key: Key) -> "tuple[WorkerLink | Any, Attempt | None]":
        """Return ``(link, attempt)`` of an attempt that is assigned to, or reserved for, a worker.

        Both are None if there is no such attempt.
        """
        for link in self.links.values():
            if key in link.assigned:
                return link, link.assigned[key]
            if link.reserved is not None and link.reserved.key == key:
                return link, link.reserved
        return None, None

    def take_waiting(self, key: Key) -> Attempt | None:
        """Remove and return a waiting Task; None if it does not wait here."""
        for side in self._sides:
            for attempt in side.waiting:
                if attempt.key == key:
                    side.waiting.remove(attempt)
                    return attempt
        return None

    def take_all_waiting(self) -> list[Attempt]:
        """Remove and return all waiting Tasks."""
        waiting = list(self.waiting())
        for side in self._sides:
            side.waiting.clear()
        return waiting

    def remove_waiting(self, attempts: Iterable[Attempt]) -> None:
        """Remove these waiting Tasks."""
        for attempt in attempts:
            self._side(attempt).waiting.remove(attempt)

    def drop(self, key: Key) -> "tuple[WorkerLink | None, Attempt | None]":
        """Forget a Task; return ``(link, attempt)``. The link is None unless a worker has it."""
        waiting = self.take_waiting(key)
        if waiting is not None:
            return None, waiting
        link, attempt = self.find(key)
        if attempt is None:
            return None, None
        if attempt is link.reserved:
            link.reserved = None
            return None, attempt
        link.drop(key)
        return link, attempt

    def add(self, link: "WorkerLink", loop: int | None = None) -> None:
        """Add a worker; it may be a place of the ``loop`` of this number."""
        if loop is not None:
            if link.pid not in self.loops.loops:
                self.loops.loops[link.pid] = LoopState(loop, link.pid, self.concurrency)
            link.loop = self.loops.loops[link.pid]
            link.loop.links[link.slot] = link
        self.links[link.slot] = link
        (self.processes if loop is None else self.loops).links[link.slot] = link

    def remove(self, slot: int) -> "WorkerLink":
        """Forget a worker and return its link; the caller deals with its tasks."""
        link = self.links.pop(slot)
        (self.processes if link.loop is None else self.loops).links.pop(slot)
        if link.loop is not None:
            del link.loop.links[slot]
            if not link.loop.links:
                del self.loops.loops[link.pid]
        return link

    # The loops

    def living_loops(self) -> "Collection[LoopState]":
        """Return the loops that have a place here."""
        return self.loops.loops.values()

    def look_at_loops(self, page: Page) -> None:
        """Note in which loops one step takes long, of which attempt, and how fast the loops are.

        All ends that the loops have reported have to be read before.
        """
        for loop in self.living_loops():
            loop.measure()
            step = page.step(loop.number)
            loop.blocked_by = None
            if step is not None and uptime() - step.since >= BLOCKED_AFTER:
                loop.blocked_by = step

    def running_in_loops(self, type: str) -> int:
        """Return the number of attempts of this Type that the loops have, or that wait for one."""
        held = sum(loop.held.get(type, 0) for loop in self.living_loops())
        return held + sum(attempt.type == type for attempt in self.loops.waiting)

    # Claiming

    def room(self, behind: int = 0) -> tuple[Room, Room]:
        """Return the room of the processes and that of the loops; see :meth:`.Side.room`."""
        return self.processes.room(behind), self.loops.room(behind)

    def is_low(self) -> bool:
        """Tell whether some worker has little left to do, and no Task waits for its side."""
        return any(side.is_low() for side in self._sides)

    def has_free(self, attempt: Attempt) -> bool:
        """Tell whether some worker that could run the attempt has nothing to do."""
        return self._side(attempt).has_free()

    def side(self, *, loops: bool) -> Side:
        """Return the side of the loops, or that of the processes."""
        return self.loops if loops else self.processes

    def is_idle(self) -> bool:
        """Tell whether some worker has nothing to do, whatever Type a Task is of."""
        return all(side.has_free() for side in self._sides)

    def claim_took(self, seconds: float) -> None:
        """Note the time from the start of a claim until its Tasks can be handed out."""
        self._pace.measure_claim(seconds)

    def put(self, claimed: Sequence[Attempt]) -> None:
        """Add Tasks that have just been claimed."""
        now, apart = uptime(), self._transactional
        first = self._put
        self._put += len(claimed)
        for place, attempt in enumerate(claimed, first):
            attempt.since, attempt.place = now, place
            if attempt.lost > 0 or attempt.type in apart:
                attempt.alone = attempt.single = True
            elif self.single and attempt.type in self.single:
                attempt.single = True
        if not self.concurrency:
            self.processes.waiting.extend(claimed)
            return
        for attempt in claimed:
            self._side(attempt).waiting.append(attempt)

    def put_back(self, attempts: Collection[Attempt]) -> None:
        """Let Tasks that their worker has not started wait again; they keep their place."""
        now = uptime()
        for attempt in attempts:
            attempt.since = now
        for side in self._sides:
            own = [each for each in attempts if self._side(each) is side]
            side.put_back(own)

    def overstock(self) -> list[Attempt]:
        """Remove and return the Tasks that have waited too long while no worker was free."""
        if not self.count_waiting():
            return []
        limit = uptime() - PATIENCE
        surplus = [attempt for attempt in self.waiting() if attempt.since < limit]
        self.remove_waiting(surplus)
        if surplus:
            self._pace.slow_down()
        return surplus

    # Handing out

    def hand_out(self) -> list[Attempt]:
        """Give waiting Tasks to the workers; see :meth:`.HandOut.hand_out`."""
        if len(self._sides) == 1:
            return self.processes.hand_out()
        return [attempt for side in self._sides for attempt in side.hand_out()]

    def release_reserved(self, key: Key) -> None:
        """Give a reserved Task to its worker, now that its start is recorded."""
        attempt: Any
        link, attempt = self.find(key)
        if self.take_reserved(key):
            (self.processes if link.loop is None else self.loops).give(link, attempt)

    def take_reserved(self, key: Key) -> list[Attempt]:
        """Remove a reserved Task and return it in a list; the list is empty if there is none."""
        link, attempt = self.find(key)
        if attempt is None or attempt is not link.reserved:
            return []
        link.reserved = None
        return [attempt]

    def ended(self, link: "WorkerLink", key: Key, seconds: float) -> Attempt | None:
        """Remove a Task that its worker has ended; return its attempt, or None if unknown."""
        attempt = link.drop(key)
        if attempt is not None:
            self._pace.measure(attempt.type, seconds - attempt.paused)
        return attempt

    # Taking back

    def take_back(self) -> None:
        """Take unstarted Tasks from workers that keep them too long."""
        now = uptime()
        for side in self._sides:
            is_free = side.has_free()
            for link in side.links.values():
                if self._keeps_too_long(link, now, is_free=is_free):
                    taken = self.unstarted(link)
                    if taken:
                        log.taken_back(worker=link.slot, count=len(taken))
                    self.put_back(taken)

    @staticmethod
    def _keeps_too_long(link: "WorkerLink", now: float, *, is_free: bool) -> bool:
        if not link.assigned:
            return False
        if link.loop is not None and (link.loop.blocked_by is not None or link.is_retiring):
            return True
        if len(link.assigned) < 2 or link.running is None:
            return False
        waited = now - max(link.running.started, _second(link).since)
        return waited >= (STEAL_AFTER if is_free else PATIENCE / 2)

    def pause(self, longest: float) -> float:
        """Return the time until a worker has to be looked at, in seconds, ``longest`` at most."""
        for side in self._sides:
            longest = side.pause(longest)
        return longest

    def take_unstarted_back(self, key: Key) -> None:
        """If this Task's worker has not started it, take back all its unstarted Tasks."""
        link, attempt = self.find(key)
        if attempt is not None and attempt is not link.reserved and attempt.started is None:
            self.put_back(self.unstarted(link))

    def unstarted(self, link: "WorkerLink") -> list[Attempt]:
        """Take the worker's start tokens; remove and return the Tasks that it thus cannot start."""
        taken = set(link.tokens.take_all())
        return [link.drop(h.key) for h in list(link.assigned.values()) if h.serial in taken]  # type: ignore[misc]


def _second(link: "WorkerLink") -> Attempt:
    hand = iter(link.assigned.values())
    next(hand)
    return next(hand)


# The tasks assigned to one worker, and the channel that carries them.


class LoopState:
    """What the dispatcher knows of a loop, whose places are workers.

    ``links`` are the places, by slot. ``held`` is the number of assigned tasks, by Type.
    ``blocked_by`` is the step that blocks the loop, or None.
    """

    def __init__(self, number: int, pid: int, concurrency: Mapping[str, int]) -> None:
        self.number = number
        self.pid = pid
        self.links: dict[int, WorkerLink] = {}
        self.held: dict[str, int] = {}
        self.blocked_by: Step | None = None
        self.is_retiring = False
        self._concurrency = concurrency
        self._most = max(concurrency.values())
        self._count = 0
        # The mean time from one end to the next while the loop has tasks, in seconds.
        self._interval: float | None = None
        # The ends since the last measurement: their number, the first start and the last end among
        # them; and the last end before these.
        self._ends, self._first, self._last, self._before = 0, NEVER, 0.0, 0.0

    @property
    def channel(self) -> Channel:
        """The channel through which the loop gets the tasks of all its places."""
        return next(iter(self.links.values())).channel

    @property
    def has_ahead(self) -> bool:
        """Whether the loop has more tasks than places."""
        return self._count > len(self.links)

    @property
    def load(self) -> float:
        """The seconds until no task waits for a place of the loop."""
        return max(0, self._count - len(self.links)) * (self._interval or 0.0)

    @property
    def room(self) -> int:
        """The number of tasks that the loop may have ahead, beyond those it has."""
        return 0 if self._interval is None else int((AHEAD - self.load) / self._interval)

    def takes(self, type: str, *, is_ahead: bool) -> bool:
        """Tell whether the loop may have one more task of this Type; ``is_ahead``: of a busy place.

        If the Type may fill all its places, these may have short tasks ahead, as processes have.
        """
        if is_ahead and self.load >= AHEAD:
            return False
        limit = self._concurrency.get(type, 0)
        return limit == self._most or self.held.get(type, 0) < limit

    def count(self, type: str, more: int) -> None:
        """Count ``more`` assigned tasks of a Type, which may be fewer."""
        self.held[type] = self.held.get(type, 0) + more
        self._count += more

    def ended(self, started: float, ended: float) -> None:
        """Note the end of an attempt, by times on the uptime clock."""
        self._ends += 1
        self._first, self._last = min(self._first, started), max(self._last, ended)

    def measure(self) -> None:
        """Measure the time from one end to the next by the ends that were noted since the last."""
        if not self._ends:
            return
        seconds = (self._last - max(self._before, self._first)) / self._ends
        weight = 1 - (1 - _WEIGHT) ** self._ends
        before = seconds if self._interval is None else self._interval
        self._interval = max(_SHORTEST, before + weight * (seconds - before))
        self._ends, self._first, self._before = 0, NEVER, self._last


@dataclass(eq=False)
class WorkerLink:
    """One worker: its channel, its tokens, its ring, and the tasks ``assigned`` to it, in order.

    All its tasks together are ``expected`` to run for this many seconds.
    """

    slot: int
    pid: int
    channel: Channel
    tokens: Tokens
    ring: Ring
    assigned: OrderedDict[Key, Attempt] = field(default_factory=OrderedDict, init=False)
    expected: float = field(default=0.0, init=False)
    serial: int = field(default=0, init=False)
    # Attempts, by key, that this daemon no longer holds, but that the worker may still run.
    revoked: dict[Key, Attempt] = field(default_factory=dict, init=False)
    # The attempt that waits for its start to be recorded before this worker gets it.
    reserved: Attempt | None = field(default=None, init=False)
    # It has not said yet that it is ready; it has said that it is about to exit.
    is_starting: bool = field(default=False, init=False)
    is_retiring: bool = field(default=False, init=False)
    # The host of its attempt, if an engine runs it.
    host: str = field(default="", init=False)
    # The loop of which it is a place, or None.
    loop: LoopState | None = field(default=None, init=False)
    # It has tasks and starts none.
    is_stuck: bool = field(default=False, init=False)
    # It was dismissed; and the time of the last dismissal, on the uptime clock.
    is_leaving: bool = field(default=False, init=False)
    dismissed_at: float = field(default=0.0, init=False)

    @property
    def first(self) -> Attempt | Any:
        """The task that the worker runs or is about to run; None if it has no task."""
        return next(iter(self.assigned.values()), None)

    @property
    def running(self) -> Attempt | Any:
        """The task that the worker is known to run, or None."""
        first = self.first
        return first if first is not None and first.started is not None else None

    @property
    def is_paused(self) -> bool:
        """Whether the worker's running task is paused."""
        running = self.running
        return running is not None and running.pause is not None and not running.pause.may_go

    @property
    def is_free(self) -> bool:
        """Whether the worker has no task, and takes one."""
        return not self.assigned and self.reserved is None and self.takes_tasks

    @property
    def takes_tasks(self) -> bool:
        """Whether the worker is ready, and is neither stuck nor about to exit."""
        if self.is_leaving or self.is_retiring or self.is_starting or self.is_stuck:
            return False
        return self.loop is None or self.loop.blocked_by is None

    def add(self, attempt: Attempt) -> None:
        """Assign a task to the worker."""
        self.serial += 1
        attempt.serial = self.serial
        self.assigned[attempt.key] = attempt
        self.expected += attempt.expected
        if self.loop is not None:
            self.loop.count(attempt.type, 1)

    def drop(self, key: Key) -> Attempt | None:
        """Take a task away from the worker; return the task, or None."""
        attempt = self.assigned.pop(key, None)
        if attempt is not None:
            self.expected = self.expected - attempt.expected if self.assigned else 0.0
            if self.loop is not None:
                self.loop.count(attempt.type, -1)
        return attempt

    def close(self) -> None:
        self.channel.close()
        self.tokens.close()
