"""Whose turn it is: Types by weight, lanes one after the other; the claim order in SQL; what a
daemon remembers between claims.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

Item = TypeVar("Item")
Shortcut = TypeVar("Shortcut")

# The memory that a daemon keeps between its claims, and the claiming daemon itself.

# In seconds: while there is other work, a Type found empty is not looked at again for so long.
FULL_FOR = 0.05


class FullTypes:
    """The limited Types that had nothing to claim lately."""

    def __init__(self) -> None:
        # The time of the last such claim, by Type, on the monotonic clock.
        self._found_at: dict[str, float] = {}
        # The Types whose limits another session is known to keep locked.
        self.blocked: set[str] = set()

    def found(self, type: str) -> None:
        """Note that nothing could be claimed of this Type."""
        self._found_at[type] = time.monotonic()

    def not_lately(self, types: Iterable[str]) -> list[str]:
        """Return the Types that may have room: all but those found full a moment ago.

        A claim looks at the others only if there is nothing else to do.
        """
        before = time.monotonic() - FULL_FOR
        return [type for type in types if self._found_at.get(type, 0.0) < before]

    def not_blocked_lately(self, types: Collection[str]) -> list[str]:
        """Return the Types whose limits were not found locked a moment ago."""
        tried = {*self.not_lately(types)}
        return [type for type in types if type in tried or type not in self.blocked]


class ClaimMemory:
    """The memory of a daemon from one claim to the next.

    ``rotation`` says whose turn it is. ``limited`` are the Types known to have a limited lane. A
    claim without a memory finds the same Tasks, but cannot take turns with earlier claims.
    """

    def __init__(self) -> None:
        self.rotation = Rotation()
        self.limited: Collection[str] = ()
        self.full = FullTypes()
        self._shortcuts: dict[type, Any] = {}

    def shortcut(self, kind: type[Shortcut]) -> Shortcut:
        """Return the shortcut of this class; each store has shortcuts of its own."""
        found = self._shortcuts.get(kind)
        if found is None:
            found = self._shortcuts[kind] = kind()
        return found


@dataclass(frozen=True, slots=True)
class Claimant:
    """A daemon that claims; with ``careful`` it waits for no lock of another session."""

    daemon: UUID
    memory: ClaimMemory = field(default_factory=ClaimMemory)
    careful: bool = False


# Turns: Types take turns by their weights, and the lanes of a Type one after the other.
#
# Each daemon remembers the turns between its own claims. If the claims of each daemon are fair, so
# are all claims together.

# A look is broken off after so many lanes and priorities; the next one goes on there.
STEPS = 50_000
# If there are several Types, a claim takes from up to so many lanes of each, within its limit.
LANES = 100
# The Tasks of several lanes are dealt out in about this many rounds, or more.
PIECES = 64


class Rotation:
    """The order of Types, and the lane of each behind which the next claim begins.

    Each Type has a virtual time, which advances by the number of its Tasks taken, divided by its
    weight. The Type that is furthest behind comes first. A Type that was idle for a while does not
    get that time back (start-time fair queueing).
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._now = 0.0
        self._after: dict[tuple[str, bool], str] = {}
        # By Type, and whether they are limited: the lanes of the last claims. By Type: the fraction
        # of a Task that its limited lanes have still to get.
        self._lanes: dict[tuple[str, bool], deque[str]] = {}
        self._carry: dict[str, float] = {}
        # The lanes that the last claim took from; the Types it took from, if it was not limited.
        self._last: set[tuple[str, str]] = set()
        self._rivals: set[str] = set()
        # The number of unlimited claims; by Type, the last one that took from it.
        self._claims = 0
        self._unlimited: dict[str, int] = {}
        self._weights: dict[str, float] = {}

    def order(self, types: Iterable[str]) -> list[str]:
        """Return the Types in their order: the one that is furthest behind first."""
        return sorted(types, key=self._time)

    def behind(self, types: Iterable[str]) -> list[str]:
        """Return the limited ``types`` that are not ahead of a rival.

        A rival is a Type of the last unlimited claim. A mixed Type is always among the result: its
        limited lanes get a part of their own.
        """
        first = min([self._times[type] for type in self._rivals], default=-1.0)
        return [t for t in self.order(types) if self.is_mixed(t) or self._time(t) <= first]

    def is_mixed(self, type: str) -> bool:
        """Return whether a limited Type has unlimited lanes too, as the last claims have found."""
        return self._claims - self._unlimited.get(type, -LANES) < LANES

    def parts(self, types: Collection[str], limit: int) -> dict[str, int]:
        """Return how many limited Tasks of a claim each Type may give, by weights; those that may.

        If a Type is mixed, each of its limited lanes gets as much as each of the others.
        """
        if not types:
            return {}
        others = filter(self.is_mixed, self._unlimited)
        weights = {type: self._weights.get(type, 1.0) for type in {*types, *others}}
        total, parts = sum(weights.values()), {}
        for type in types:
            part = limit * weights[type] / total
            parts[type] = self._of_lanes(type, part) if self.is_mixed(type) else _ceil(part)
        return {type: part for type, part in parts.items() if part}

    def _of_lanes(self, type: str, part: float) -> int:
        """Return the limited lanes' part of a Type's; a fraction is kept for the next claim."""
        limited, others = (
            max(1, len(set(self._lanes.get((type, apart), ())))) for apart in (True, False)
        )
        exact = part * limited / (limited + others) + self._carry.get(type, 0.0)
        self._carry[type] = exact % 1
        return int(exact)

    def _time(self, type: str) -> float:
        return self._times.get(type, 0.0)

    def after(self, type: str, *, apart: bool = False) -> str:
        """Return the collection behind which to begin; limited lanes (``apart``) have their own."""
        return self._after.get((type, apart), "")

    def skip(self, places: Iterable[tuple[str, str]], *, apart: bool = False) -> None:
        """Let the next look go on at these pairs (Type, collection), where one was broken off."""
        self._after |= {(type, apart): collection for type, collection in places}

    def turned(self, lanes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return limited lanes of a Type, sorted, beginning behind the last one used."""
        return sorted(lanes, key=lambda lane: (lane[1] <= self.after(lane[0], apart=True), lane))

    def took(
        self,
        counts: Mapping[tuple[str, str], int],
        weights: Mapping[str, float],
        *,
        apart: bool = False,
    ) -> None:
        """Remember a claim: the number of Tasks by lane, in the order of looking, and the weights.

        ``apart`` says that the claim was of limited Tasks.
        """
        by_type: dict[str, int] = {}
        self._weights |= weights
        for (type, collection), count in counts.items():
            by_type[type] = by_type.get(type, 0) + count
            self._after[type, apart] = collection
        if not apart:
            self._rivals = set(by_type)
            self._claims += 1
            self._unlimited |= dict.fromkeys(by_type, self._claims)
        if by_type:
            self._now = max(self._now, min(self._time(type) for type in by_type))
        for type, collection in counts:
            self._lanes.setdefault((type, apart), deque(maxlen=LANES)).append(collection)
        for type, count in by_type.items():
            began = max(self._time(type), self._now)
            self._times[type] = began + count / weights.get(type, 1.0)

    def dealt(self, lanes: Mapping[tuple[str, str], list[Item]]) -> list[Item]:
        """Return the Tasks of ``lanes`` (lists by lane) in turn: the first of each, the second, …

        If there are many, several of a lane come together: a batch of one Type takes fewer words to
        a worker. Lanes that the last claim did not take from come first.
        """
        if len(lanes) == 1:
            self._last = set(lanes)
            [tasks] = lanes.values()
            return tasks
        order = sorted(lanes, key=self._last.__contains__)
        self._last = set(lanes)
        rounds, hands = [], [lanes[lane] for lane in order]
        piece = max(1, sum(map(len, hands)) // PIECES)
        for first in range(0, max(map(len, hands), default=0), piece):
            for hand in hands:
                rounds += hand[first : first + piece]
        return rounds


def most_steps(types: int) -> int:
    """Return how many steps from lane to lane a look may take in each of ``types`` Types."""
    return max(1, STEPS // max(1, types))


def enough_lanes(limit: int, types: int) -> int:
    """Return from how many lanes of each of ``types`` Types a claim takes at most."""
    return max(-(-limit // max(1, types)), min(limit, LANES))


def shares(
    limit: int, weights: Mapping[str, float], lanes: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return how many Tasks each lane may give, if all lanes have enough.

    ``weights`` are by Type. ``lanes`` are pairs of Type and collection, in claim order. Each Type
    gets its part of ``limit``, and each of its lanes an even share of that. Remainders go to those
    that come first.
    """
    of_type: dict[str, list[tuple[str, str]]] = {}
    for lane in lanes:
        of_type.setdefault(lane[0], []).append(lane)
    total, until, given = sum(weights[type] for type in of_type), 0.0, {}
    for type, own in of_type.items():
        before, until = until, until + weights[type]
        part = _ceil(limit * until / total) - _ceil(limit * before / total)
        for number, lane in enumerate(own):
            given[lane] = -(-part * (number + 1) // len(own)) + (-part * number // len(own))
    return given


def taken(
    limit: int,
    weights: Mapping[str, float],
    lanes: Collection[tuple[str, str]],
    caps: Mapping[tuple[str, str], int],
    take: Callable[[tuple[str, str], int], list[Item]],
) -> dict[tuple[str, str], list[Item]]:
    """Collect up to ``limit`` Tasks as lists by lane; ``take(lane, wanted)`` returns a lane's.

    Each lane gives its share first. What a lane lacks, other lanes of its Type give; what is still
    missing then, any lane gives. No lane gives more than its cap.
    """
    share = shares(limit, weights, lanes)
    found: dict[tuple[str, str], list[Item]] = {}
    lacking: Counter[str] = Counter()
    for lane in lanes:
        found[lane] = take(lane, min(share[lane], caps.get(lane, limit)))
        lacking[lane[0]] += share[lane] - len(found[lane])
    left = sum(lacking.values())
    more = [lane for lane in lanes if lane not in caps and len(found[lane]) == share[lane]]
    for of_type in (True, False):
        for lane in more if left else ():
            wanted = min(left, lacking[lane[0]]) if of_type else left
            if wanted > 0:
                tasks = take(lane, wanted)
                found[lane] += tasks
                lacking[lane[0]] -= len(tasks)
                left -= len(tasks)
    return found


def _ceil(value: float) -> int:
    return -int(-(value - 1e-6) // 1)


# The claim order of :mod:`atp.querysets`, as SQL and as a sort of rows in memory.


def in_sql(order: Iterable[str], table: str = "") -> str:
    """Return the columns for ORDER BY; ``table`` is a prefix such as ``"task."``."""
    return ", ".join(
        f"{table}{name.removeprefix('-')}" + " DESC" * name.startswith("-") for name in order
    )


class RowOrder:
    """Sorts rows (tuples) by an order; ``columns`` gives the index of each name of the order."""

    def __init__(self, order: Sequence[str], columns: Mapping[str, int]) -> None:
        # Sorting is stable, so the least important column comes first. These passes are quicker
        # than one pass with a key function in Python.
        self._passes = [
            (itemgetter(columns[name.removeprefix("-")]), name.startswith("-"))
            for name in reversed(order)
        ]

    def sort(self, rows: list[tuple[Any, ...]]) -> None:
        for key, is_descending in self._passes:
            rows.sort(key=key, reverse=is_descending)
