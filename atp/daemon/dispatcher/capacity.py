"""The resources of this host, and what the attempts that the daemon holds take of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db import DatabaseError

from ... import placement
from ...operations.registry import registry
from ...placement import DEVICES, Amounts
from ...store.common.turns import ClaimMemory
from ...store.values import Attempt
from ..protocol import EngineState
from .pool import Pool, Room

# Types that take resources are claimed one after the other, each with as many Tasks as find room.
# So this daemon never holds more than its host has. The Types that run in loops are claimed apart
# too: they wait for other workers. All other Types are claimed at once, as if there were no such
# Types.

# A claim: of these Types, at most this number of Tasks, and the number for free workers.
Claim = Callable[[Sequence[str], int, int, ClaimMemory], list[Attempt]]


class Turn(NamedTuple):
    """One claim of several that follow each other: of these Types, with their own memory.

    It is for ``loops`` or for processes. ``room`` is the most Tasks that find room; None if only
    the workers limit it.
    """

    types: Sequence[str]
    memory: ClaimMemory
    loops: bool = False
    room: int | None = None


class Capacity:
    """The ``capacity`` of this host. ``costs`` are the resources that an attempt takes, by Type."""

    def __init__(self, capacity: Amounts, costs: Mapping[str, Amounts], pool: Pool) -> None:
        self._capacity = capacity
        self._costs = costs
        self._pool = pool
        self._devices = placement.device_names(capacity, os.environ)
        self._memories = {type: ClaimMemory() for type in costs}
        # The place in the order of the claims at which the next one begins.
        self._turn = 0
        # Whether the last claim may have left due Tasks behind, for want of resources.
        self.is_short = False
        # The sides (loops or not) at which it looked, and those for which it took all it might.
        self.looked: set[bool] = set()
        self.full: set[bool] = set()
        # Why the engine of an executor is away, or "".
        self.error = ""

    def free(self) -> dict[str, int]:
        """Return the amounts that no attempt of this daemon takes."""
        free = dict(self._capacity)
        if not self._costs:
            return free
        for attempt in self._pool.attempts():
            self._take(free, attempt.type)
        return free

    def _take(self, free: dict[str, int], type: str, count: int = 1) -> None:
        for name, amount in self._costs.get(type, {}).items():
            free[name] = free.get(name, 0) - count * amount

    def learn(self, engine: EngineState) -> None:
        """Note what the follower has reported of the engine, if there is one."""

    @property
    def has_room(self) -> bool:
        """Whether a Task that takes no resources finds room."""
        return self.bounded(1) > 0

    def bounded(self, count: int) -> int:
        """Return how many of ``count`` further Tasks find room, if they take no resources."""
        return count

    def claimable(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given Types without those of which no further attempt finds room."""
        if not self._costs:
            return types
        free = self.free()
        return tuple(
            type
            for type in types
            if type not in self._costs or placement.room(self._costs[type], free)
        )

    def claims(
        self,
        types: Sequence[str],
        processes: Room,
        loops: Room,
        memory: ClaimMemory,
        claim: Claim,
    ) -> Callable[[], list[Attempt]]:
        """Return a function that claims for ``processes`` and ``loops``, to be called in a thread.

        ``memory`` is that of the claims of Types that take no resources and run in processes. The
        Types that need a claim of their own take turns in being the first.
        """
        self.is_short, self.looked, self.full = False, {False}, set()
        concurrency = self._pool.concurrency
        costly = [type for type in types if type in self._costs]
        if not costly and not concurrency:
            return lambda: claim(types, processes.limit, processes.free, memory)
        self.looked = set()
        free = self.free()
        plain = [t for t in types if t not in self._costs and t not in concurrency]
        turns = [Turn(plain, memory), *(Turn([type], self._memories[type]) for type in costly)]
        if concurrency:
            turns += self._turns_of_loops([type for type in types if type in concurrency])
        turns = [turn for turn in turns if turn.types]
        self._turn = (self._turn + 1) % max(1, len(turns))
        turns = turns[self._turn :] + turns[: self._turn]
        rooms = {False: processes, True: loops}

        def claim_all() -> list[Attempt]:
            claimed: list[Attempt] = []
            count = {False: 0, True: 0}
            for turn in turns:
                left = rooms[turn.loops].limit - count[turn.loops]
                idle = max(0, rooms[turn.loops].free - count[turn.loops])
                is_costly = turn.types[0] in self._costs
                if is_costly:
                    left = min(left, idle, placement.room(self._costs[turn.types[0]], free))
                elif turn.room is not None:
                    left = min(left, turn.room)
                if left <= 0:
                    self.is_short = True
                    continue
                self.looked.add(turn.loops)
                try:
                    found = claim(turn.types, left, min(idle, left), turn.memory)
                except DatabaseError:
                    if not claimed:
                        raise
                    self.is_short = True
                    break  # what was claimed before runs
                claimed += found
                count[turn.loops] += len(found)
                if is_costly:
                    self._take(free, turn.types[0], len(found))
                if is_costly or turn.room is not None:
                    self.is_short = self.is_short or len(found) == left
            self.full = {side for side, number in count.items() if number >= rooms[side].limit}
            return claimed

        return claim_all

    def _turns_of_loops(self, types: Sequence[str]) -> Iterator[Turn]:
        """Yield the claims for loops: one for the Types that may fill one, one for each other."""
        concurrency = self._pool.concurrency
        most = max(concurrency.values())
        yield Turn([type for type in types if concurrency[type] == most], self._memory_of(""), True)
        loops = len(self._pool.living_loops())
        for type in types:
            if concurrency[type] < most:
                room = concurrency[type] * loops - self._pool.running_in_loops(type)
                yield Turn([type], self._memory_of(type), True, room)

    def _memory_of(self, type: str) -> ClaimMemory:
        return self._memories.setdefault(type, ClaimMemory())

    def admit(self, claimed: Iterable[Attempt]) -> tuple[list[Attempt], list[Attempt]]:
        """Give claimed Tasks their devices; return those that find room, and the others.

        Only a Task that another process has handed to this daemon may find none.
        """
        if not self._costs:
            return list(claimed), []
        free, admitted, surplus = self.free(), [], []
        used = {device for each in self._pool.attempts() for device in each.devices}
        devices = [name for name in self._devices if name not in used]
        for attempt in claimed:
            costs = self._costs.get(attempt.type)
            if costs is not None:
                if not placement.room(costs, free):
                    surplus.append(attempt)
                    continue
                self._take(free, attempt.type)
                attempt.single = True
                count = costs.get(DEVICES, 0)
                attempt.devices, devices = tuple(devices[:count]), devices[count:]
            admitted.append(attempt)
        return admitted, surplus


class EngineCapacity(Capacity):
    """What the cluster of an executor can place, as far as its follower has reported it.

    Until then, and while the engine is away, that is nothing.
    """

    def __init__(self, costs: Mapping[str, Amounts], pool: Pool) -> None:
        super().__init__({}, costs, pool)
        self._all_costs = costs
        self._room = 0
        self._lacking: frozenset[str] = frozenset()

    def learn(self, engine: EngineState) -> None:
        """Note what the follower has reported."""
        self.error = engine.error
        self._room = 0 if engine.error else engine.room
        self._capacity = {name: int(amount) for name, amount in engine.resources.items()}
        lacking = (registry.get(type) for type in engine.lacks if type in registry)
        self._lacking = frozenset(name for declared in lacking for name in declared.names)
        # An engine that does not count a resource has no limit for it.
        counted = {
            type: {name: amount for name, amount in costs.items() if name in self._capacity}
            for type, costs in self._all_costs.items()
        }
        self._costs = {type: costs for type, costs in counted.items() if costs}

    def bounded(self, count: int) -> int:
        """Return how many of ``count`` further Tasks find room.

        If the cluster has room for all places of this daemon, these may have Tasks that wait.
        """
        if self._room >= len(self._pool.links):
            return count if self._room else 0
        return max(0, min(count, self._room - len(self._pool)))

    def claimable(self, types: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in super().claimable(types) if each not in self._lacking)

    def claims(
        self,
        types: Sequence[str],
        processes: Room,
        loops: Room,
        memory: ClaimMemory,
        claim: Claim,
    ) -> Callable[[], list[Attempt]]:
        types = [each for each in types if each not in self._lacking]
        return super().claims(types, processes, loops, memory, claim)

    def admit(self, claimed: Iterable[Attempt]) -> tuple[list[Attempt], list[Attempt]]:
        """Return the claimed Tasks that find room, and the others; the engine assigns devices."""
        claimed, free = list(claimed), self.free()
        left = self.bounded(len(claimed))
        admitted: list[Attempt] = []
        surplus: list[Attempt] = []
        for attempt in claimed:
            costs = self._costs.get(attempt.type, {})
            is_placeable = attempt.type not in self._lacking and placement.room(costs, free) > 0
            if len(admitted) >= left or not is_placeable:
                surplus.append(attempt)
                continue
            self._take(free, attempt.type)
            attempt.single = attempt.single or bool(costs)
            admitted.append(attempt)
        return admitted, surplus
