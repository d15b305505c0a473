"""Overload: the numbers of waiting Tasks that a process remembers, and when it counts them again.

A process keeps the count of a scope (a Type or a lane) for a quarter of a second, and adds its
own enqueues to it. It counts again earlier if it has added more than 1/64 of the free room, or
more than 1/1000 of the count. Each process that enqueues may thus exceed ``max_waiting`` by that
many, unless enqueues take turns (``exact``). Threads share the count without a lock: a lost
addition allows a few more.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType
    from ...store.contract import Store
    from ...store.values import Fill

# How long this process remembers which Types operators have limited, in seconds.
KNOWN = 5.0
# The part of the room, and of what was counted, that a process enqueues between two looks.
OF_ROOM, OF_COUNT = 64, 1000


class Look:
    """A count of a scope (a Fill), the time until which it holds, and the number of enqueues since.

    ``again`` is the earliest time for a new count if the scope is full only because of the own
    enqueues: some of these may have been started meanwhile.
    """

    def __init__(self, fill: Fill, until: float, again: float) -> None:
        self.fill, self.until, self.again, self.added = fill, until, again, 0
        room = fill.room(0)
        left = 0 if room is None else max(1, (room - fill.waiting) // OF_ROOM)
        self._most = max(left, fill.waiting // OF_COUNT) if left else inf

    def holds(self, now: float) -> bool:
        """Whether the count may be used for another enqueue."""
        return now < self.until and self.added < self._most

    def excess(self, count: int, priority: int) -> int:
        return self.fill.excess(count + self.added, priority)


class Known:
    """The counts and rates that this process has of one database."""

    def __init__(self) -> None:
        self.until = 0.0
        # The limited Types by identifier, with whether one of their lanes has a limit of its own.
        self.types: dict[str, bool] = {}
        self.looks: dict[tuple[str, str | None], Look] = {}
        self.drains: dict[str, tuple[float, float]] = {}
        # By scope: the refusals since the last log record, and the earliest time of the next.
        self.refused: dict[tuple[str, str | None], tuple[int, float]] = {}


_known: defaultdict[str, Known] = defaultdict(Known)


def forget() -> None:
    """Forget all counts: after limits have changed, and between tests."""
    _known.clear()


def known_of(store: Store) -> Known:
    """Return the counts that this process has of the store's database."""
    return _known[store.alias]


def looks_at(store: Store, task_type: TaskType) -> bool:
    """Whether waiting Tasks of a Type are limited, by code or, as last read, by an operator."""
    known = known_of(store)
    if monotonic() >= known.until:
        known.types, known.until = store.bounded(), monotonic() + KNOWN
    return (
        task_type.max_waiting is not None
        or task_type.max_wait is not None
        or task_type.identifier in known.types
    )
