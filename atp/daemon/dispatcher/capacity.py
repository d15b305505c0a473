"""The resources of this host, and what the attempts that the daemon holds take of them."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from django.db import DatabaseError

from ... import placement
from ...placement import DEVICES, Amounts
from ...store.common.turns import ClaimMemory
from ...store.values import Attempt
from .pool import Pool

# Types that take resources are claimed one after the other, each with as many Tasks as find room.
# So this daemon never holds more than its host has. All other Types are claimed at once, as if
# there were no such Types.

# A claim: of these Types, at most so many Tasks, so many of them for free workers.
Claim = Callable[[Sequence[str], int, int, ClaimMemory], list[Attempt]]


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

    def free(self) -> dict[str, int]:
        """Return the amounts that no attempt of this daemon takes."""
        free = dict(self._capacity)
        for attempt in self._pool.attempts():
            self._take(free, attempt.type)
        return free

    def _take(self, free: dict[str, int], type: str, count: int = 1) -> None:
        for name, amount in self._costs.get(type, {}).items():
            free[name] -= count * amount

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
        self, types: Sequence[str], limit: int, workers: int, memory: ClaimMemory, claim: Claim
    ) -> Callable[[], list[Attempt]]:
        """Return a function that claims up to ``limit`` Tasks, and is to be called in a thread.

        ``workers`` is the number of free workers, and ``memory`` that of the claims of Types that
        take no resources. The Types take turns in being the first.
        """
        costly = [type for type in types if type in self._costs]
        self.is_short = False
        if not costly:
            return lambda: claim(types, limit, workers, memory)
        free = self.free()
        plain = [type for type in types if type not in self._costs]
        turns: list[list[str]] = [plain, *([type] for type in costly)]
        self._turn = (self._turn + 1) % len(turns)
        turns = turns[self._turn :] + turns[: self._turn]

        def claim_all() -> list[Attempt]:
            claimed: list[Attempt] = []
            for own in turns:
                left, idle = limit - len(claimed), max(0, workers - len(claimed))
                own_memory = memory
                if own is not plain:
                    left = min(left, idle, placement.room(self._costs[own[0]], free))
                    own_memory = self._memories[own[0]]
                if own and left <= 0:
                    self.is_short = True
                if not own or left <= 0:
                    continue
                try:
                    found = claim(own, left, min(idle, left), own_memory)
                except DatabaseError:
                    if not claimed:
                        raise
                    self.is_short = True
                    break  # what was claimed before runs
                claimed += found
                if own is not plain:
                    self._take(free, own[0], len(found))
                    self.is_short = self.is_short or len(found) == left
            return claimed

        return claim_all

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
