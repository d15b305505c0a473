"""The window of a Downstream: the ends of calls in the last seconds, of all daemons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

# The length of a window, in seconds.
LENGTH = 5


class Second(NamedTuple):
    """The calls that ended in one second; ``at`` is its beginning, in seconds since the epoch."""

    at: int
    ok: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """The results of the calls of the last seconds.

    ``row`` is the number of failures in a row, ``used`` that of the tokens spent since ``since``.
    """

    seconds: tuple[Second, ...] = ()
    row: int = 0
    used: int = 0
    since: float = 0.0

    @classmethod
    def read(cls, given: dict[str, Any]) -> Self:
        """Return the window from the JSON of its column."""
        seconds = tuple(Second(*each) for each in given.get("seconds", ()))
        return cls(
            seconds=seconds,
            row=given.get("row", 0),
            used=given.get("used", 0),
            since=given.get("since", 0.0),
        )

    def written(self) -> dict[str, Any]:
        """Return the window as JSON for its column."""
        seconds = [list(each) for each in self.seconds]
        return {"seconds": seconds, "row": self.row, "used": self.used, "since": self.since}

    def added(self, more: Iterable[Second], now: float) -> Window:
        """Return the window with more calls, and without those that are too old."""
        found: dict[int, Second] = {}
        for each in (*self.seconds, *more):
            if each.at > now - LENGTH:
                was = found.get(each.at, Second(each.at))
                counts = (a + b for a, b in zip(was[1:], each[1:], strict=True))
                found[each.at] = Second(each.at, *counts)
        return replace(self, seconds=tuple(sorted(found.values())))

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.seconds)

    @property
    def total(self) -> int:
        return sum(each.ok + each.refused + each.failed for each in self.seconds)

    def ok_per_second(self, now: float) -> float:
        """Return the number of successful calls a second."""
        if not self.seconds:
            return 0.0
        covered = min(float(LENGTH), max(1.0, now - self.seconds[0].at))
        return sum(each.ok for each in self.seconds) / covered
