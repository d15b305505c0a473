"""The scope of a gate or a limit, and its fill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...models import Type

# The shares of max_waiting that are open to negative priorities, and to priority 0.
LOW, USUAL = 0.8, 0.9


@dataclass(frozen=True)
class Scope:
    """The scope of a gate or a limit: a Type, or one of its lanes; with neither, everything.

    ``type`` is a row of Type. ``subject`` is the scope's name in the log.
    """

    type: Type | None = None
    collection: str | None = None

    @property
    def subject(self) -> str:
        if self.type is None:
            return "queue"
        if self.collection is None:
            return f"type:{self.type.identifier}"
        return f"lane:{self.type.identifier}/{self.collection}"

    @property
    def columns(self) -> dict[str, Any]:
        return {"type": self.type, "collection": self.collection}


@dataclass(frozen=True, kw_only=True)
class Fill:
    """The waiting Tasks and the limits of a scope; ``collection`` None means the whole Type.

    ``waiting`` is counted up to twice ``max_waiting``. ``oldest`` is the time for which the oldest
    due Task has waited; None if nothing is due, or if it does not matter. ``late`` is the number of
    Tasks that have waited longer than ``max_wait``, counted up to a maximum.
    """

    type: str
    collection: str | None = None
    max_waiting: int | None = None
    max_wait: timedelta | None = None
    waiting: int = 0
    oldest: timedelta | None = None
    late: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether this scope has a limit."""
        return self.max_waiting is not None or self.max_wait is not None

    def room(self, priority: int) -> int | None:
        """Return how many Tasks may wait when one of this priority comes; None is any number."""
        return None if self.max_waiting is None else room(self.max_waiting, priority)

    def excess(self, count: int, priority: int) -> int:
        """Return how many Tasks have to go before ``count`` more fit; 0 if they fit.

        If the scope has both limits, it is full only if both are exceeded.
        """
        over = []
        most = self.room(priority)
        if most is not None:
            over.append(max(0, self.waiting + count - most))
        if self.max_wait is not None:
            is_late = self.oldest is not None and self.oldest > self.max_wait
            over.append(max(1, self.late) if is_late else 0)
        return min(over, default=0)


def room(max_waiting: int, priority: int) -> int:
    """Return the part of ``max_waiting`` that is open to this priority."""
    if priority > 0:
        return max_waiting
    return math.ceil(max_waiting * (USUAL if priority == 0 else LOW))
