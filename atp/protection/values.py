"""The values of protection: a downstream, and the report of a daemon on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .window import Second, Window

# The lowest rate, unless an operator has set another.
LOWEST = 0.5
# The burst: the calls that the rate allows in this time, in seconds, may start at once.
BURST = 0.25


class State(StrEnum):
    CLOSED = "closed"
    THROTTLED = "throttled"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Verdict(StrEnum):
    """The verdict of an attempt's end on the downstream."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    # The attempt ended in another way, and tells nothing about the downstream.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A daemon's report on the calls that ended since its last report.

    ``counts`` are tuples: an age in seconds, and the calls that were ok, refused and failed then.
    ``row`` is the number of failures in a row at its end; ``had_ok`` tells whether a call before
    these was ok. ``after`` is the longest delay in seconds that the downstream asked for. ``probe``
    is the key of the Instance that probed, with its :class:`Verdict`.
    """

    counts: tuple[tuple[float, int, int, int], ...] = ()
    row: int = 0
    had_ok: bool = False
    after: float | None = None
    probe: tuple[int, Verdict] | None = None

    @property
    def refused(self) -> int:
        return sum(refused for _, _, refused, _ in self.counts)

    def seconds(self, now: float) -> tuple[Second, ...]:
        """Return the counts by second of this process's clock."""
        return tuple(Second(int(now - age), *numbers) for age, *numbers in self.counts)


@dataclass(frozen=True, kw_only=True)
class Protection:
    """A downstream as all daemons see it; :class:`atp.models.Downstream` has the same columns."""

    state: State = State.CLOSED
    per_second: float = 0.0
    tokens: float = 0.0
    refilled: float | None = None
    last_max: float = 0.0
    window: Window = field(default_factory=Window)
    adjusted_at: float | None = None
    decreased_at: float | None = None
    trips: int = 0
    not_before: float | None = None
    probe: int | None = None
    ceiling: float | None = None
    floor: float | None = None

    def bounded(self, rate: float) -> float:
        """Return the rate, limited to the floor and the ceiling."""
        lowest = LOWEST if self.floor is None else self.floor
        rate = max(rate, lowest)
        return rate if self.ceiling is None else min(rate, self.ceiling)

    def burst(self) -> float:
        return max(1.0, BURST * self.per_second)

    def available(self, now: float) -> float:
        """Return the number of tokens; for late daemons it may exceed the burst by a fraction."""
        if self.refilled is None:
            return self.burst()
        most = self.burst() + min(0.99, BURST * self.per_second)
        return min(most, self.tokens + max(0.0, now - self.refilled) * self.per_second)

    def opens_in(self, now: float) -> float:
        """Return the seconds for which no calls at all are allowed."""
        if self.state is State.CLOSED or self.not_before is None:
            return 0.0
        return max(0.0, self.not_before - now)
