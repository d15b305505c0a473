"""Overload: whether what is to be enqueued fits into its Type and its lane.

Each process keeps what it has found of a scope for a quarter of a second, adds what it
enqueues in between, and looks anew when that is a sixty-fourth of the room that it has found, or
a thousandth of what it has counted. So that many more than ``max_waiting`` may wait for each
process that enqueues, unless they take turns (``exact``). Threads share what is kept and take no
lock: an addition that is lost adds to that, no more.
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

# How long is kept which Types operators have limited, in seconds.
KNOWN = 5.0
# The part of the room, and of what was counted, that a process enqueues between two looks.
OF_ROOM, OF_COUNT = 64, 1000


class Look:
    """A Fill, until when it holds, and how many this process has enqueued since.

    ``again`` is from when on it may be made anew, if only what was added makes it full: some
    of that may have been started.
    """

    def __init__(self, fill: Fill, until: float, again: float) -> None:
        self.fill, self.until, self.again, self.added = fill, until, again, 0
        room = fill.room(0)
        left = 0 if room is None else max(1, (room - fill.waiting) // OF_ROOM)
        self._most = max(left, fill.waiting // OF_COUNT) if left else inf

    def holds(self, now: float) -> bool:
        """Whether it is good for another enqueue."""
        return now < self.until and self.added < self._most

    def excess(self, count: int, priority: int) -> int:
        return self.fill.excess(count + self.added, priority)


class Known:
    """What this process knows, by the alias of the queue's database."""

    def __init__(self) -> None:
        self.until = 0.0
        # By identifier of a Type that is limited, whether a lane of it is.
        self.types: dict[str, bool] = {}
        self.looks: dict[tuple[str, str | None], Look] = {}
        self.drains: dict[str, tuple[float, float]] = {}
        # By scope, how many were refused since it was logged, and when it may be again.
        self.refused: dict[tuple[str, str | None], tuple[int, float]] = {}


_known: defaultdict[str, Known] = defaultdict(Known)


def forget() -> None:
    """Forget what is kept, as limits have changed; and in tests, as the queue has."""
    _known.clear()


def known_of(store: Store) -> Known:
    """Return what this process knows of the queue in a database."""
    return _known[store.alias]


def looks_at(store: Store, task_type: TaskType) -> bool:
    """Whether anything limits what waits of a Type: its code or, a moment ago, an operator."""
    known = known_of(store)
    if monotonic() >= known.until:
        known.types, known.until = store.bounded(), monotonic() + KNOWN
    return (
        task_type.max_waiting is not None
        or task_type.max_wait is not None
        or task_type.identifier in known.types
    )
