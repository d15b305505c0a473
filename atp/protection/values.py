"""The values of protection: a downstream, what a daemon reports of it, and their words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .window import Second, Window

# The lowest rate, unless an operator has set another.
LOWEST = 0.5
# Calls that come in so long a time may start at once, in seconds.
BURST = 0.25


class State(StrEnum):
    CLOSED = "closed"
    THROTTLED = "throttled"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Verdict(StrEnum):
    """What the end of an attempt says of the downstream."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    # It ended in another way: nobody knows.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a daemon tells of the calls that ended since its last report.

    ``counts`` are their ages in seconds, each with the calls that were ok, refused and failed.
    ``row`` are the failures in a row at the end of it, and ``had_ok`` whether another call went
    well before them. ``after`` is the longest time that the downstream asked for. ``probe`` is
    the key of the Instance that probed, with its :class:`Verdict`.
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
        """Return the calls as seconds of this clock."""
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
        """Return a rate within the floor and the ceiling."""
        lowest = LOWEST if self.floor is None else self.floor
        rate = max(rate, lowest)
        return rate if self.ceiling is None else min(rate, self.ceiling)

    def burst(self) -> float:
        return max(1.0, BURST * self.per_second)

    def available(self, now: float) -> float:
        """Return the tokens that there are; a fraction of one more is kept for who is late."""
        if self.refilled is None:
            return self.burst()
        most = self.burst() + min(0.99, BURST * self.per_second)
        return min(most, self.tokens + max(0.0, now - self.refilled) * self.per_second)

    def opens_in(self, now: float) -> float:
        """Return the seconds for which nothing at all is to be called."""
        if self.state is State.CLOSED or self.not_before is None:
            return 0.0
        return max(0.0, self.not_before - now)
