"""The rules as plain values: when the rate falls, when the breaker opens, probes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

# The window of a Downstream: the ends of calls in the last seconds, of all daemons.

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


# The values of protection: a downstream, and the report of a daemon on it.

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


# The rules of protection: when the rate of calls falls and rises, and when no calls are made.
#
# The rate follows AIMD and remembers its last maximum, as TCP's CUBIC does (RFC 9438). The circuit
# breaker is that of M. Nygard, "Release It!". Times are seconds since the epoch, rates are calls a
# second; ``spread`` is a random number from -1 to 1.

# A refusal lowers the rate to BACK times what succeeded a second, at most once in FENCE seconds.
BACK, FENCE = 0.7, 2.0
# The last maximum is at most this many times the successes a second.
ABOVE = 1.3
# A rate rises if the part USED of it was used: by the parts FAST or SLOW of it, a second.
USED, FAST, SLOW = 0.8, 0.10, 0.01
# It rises slowly between these parts of the last maximum.
NEAR, BEYOND = 0.9, 1.1
# A rate that was not used up for this long, in seconds, is lifted: the downstream is healthy.
UNUSED = 600.0
# This many failures open the breaker: in a row, or if they are half of all calls in the window.
FAILURES = 10
# In seconds, how long the breaker is open at first (then twice as long each time), and at most.
FIRST, LONGEST, SPREAD = 1.0, 300.0, 0.2
# A probe that no daemon holds any more is given up after this, in seconds.
PROBE = 2.0
# The rate after a probe that went well.
AFTER_PROBE = 1.0


def reported(was: Protection, report: Report, now: float, *, spread: float = 0.0) -> Protection:
    """Return the Protection after the report of a daemon."""
    is_shut = was.state in (State.OPEN, State.HALF_OPEN)
    if is_shut:
        if was.state is State.HALF_OPEN and report.probe and report.probe[0] == was.probe:
            return _probed(was, report.probe[1], report.after, now, spread)
        # Other calls had begun before the breaker opened, and tell nothing new.
        return _waiting(was, report.after, now)
    window = was.window.added(report.seconds(now), now)
    row = report.row if report.had_ok else was.window.row + report.row
    found = _waiting(replace(was, window=replace(window, row=row)), report.after, now)
    if _has_failed(found.window):
        return tripped(found, now, spread=spread)
    if report.refused:
        return _decreased(found, now)
    if found.state is State.CLOSED:
        return found
    return _adjusted(_learned(found, now) if _is_fenced(found, now) else found, now)


def spent(was: Protection, count: int, now: float) -> Protection:
    """Return the Protection after ``count`` calls have been allowed."""
    window = replace(was.window, used=was.window.used + count)
    tokens = was.available(now) - count
    return replace(was, tokens=tokens, refilled=now, window=window)


def probing(was: Protection, instance: int, now: float) -> Protection:
    """Return the Protection while an Instance probes the downstream."""
    return replace(was, state=State.HALF_OPEN, probe=instance, not_before=now + PROBE)


def tripped(was: Protection, now: float, *, spread: float = 0.0) -> Protection:
    """Return the Protection with an open breaker: no calls for a while, and then one probe."""
    length = min(LONGEST, FIRST * 2.0 ** min(was.trips, 20)) * (1 + SPREAD * spread)
    # A rate that is still rising after a trip tells nothing about the maximum.
    is_settled = was.state is State.THROTTLED and not was.trips
    last_max = max(was.last_max, was.per_second) if is_settled else was.last_max
    if was.state is State.CLOSED:
        last_max = 0.0
    return replace(
        was,
        state=State.OPEN,
        trips=was.trips + 1,
        not_before=max(now + length, was.not_before or 0.0),
        window=Window(since=now),
        probe=None,
        last_max=last_max,
    )


def closed(was: Protection, now: float) -> Protection:
    """Return the Protection of a healthy downstream; a ceiling still limits the rate."""
    fresh = Protection(ceiling=was.ceiling, floor=was.floor)
    return fresh if was.ceiling is None else _throttled(fresh, was.ceiling, now)


def bounded(was: Protection, now: float) -> Protection:
    """Return the Protection with its rate within a ceiling and a floor that have just been set."""
    if was.state is State.CLOSED and was.ceiling is not None:
        return _throttled(was, was.ceiling, now)
    if was.state is State.THROTTLED and _is_healthy(was):
        return closed(was, now)
    return replace(was, per_second=was.bounded(was.per_second)) if was.per_second else was


def due_in(after: float | None, opens_in: float, chance: float) -> float:
    """Return the delay in seconds until an attempt that was refused or failed may call again.

    ``chance`` is a random number from 0 to 1, which spreads attempts that come back together.
    """
    longest = max(opens_in, after or 0.0, 0.5)
    return longest + chance * max(1.0, 0.2 * longest)


def _is_healthy(was: Protection) -> bool:
    """Whether only a ceiling limits the rate: nothing was refused, and nothing has failed."""
    return not (was.decreased_at or was.not_before or was.last_max or was.trips)


def _has_failed(window: Window) -> bool:
    is_half = window.failed >= FAILURES and 2 * window.failed >= window.total
    return window.row >= FAILURES or is_half


def _waiting(was: Protection, after: float | None, now: float) -> Protection:
    if not after or was.state is State.HALF_OPEN:
        return was
    return replace(was, not_before=max(now + after, was.not_before or 0.0))


def _probed(
    was: Protection, verdict: Verdict, after: float | None, now: float, spread: float
) -> Protection:
    if verdict is Verdict.FAILED:
        return _waiting(tripped(replace(was, not_before=None), now, spread=spread), after, now)
    if verdict is Verdict.UNKNOWN:
        return replace(was, state=State.OPEN, probe=None, not_before=now)
    fresh = replace(was, probe=None, not_before=None)
    rate = AFTER_PROBE if verdict is Verdict.OK else LOWEST
    return _waiting(_throttled(fresh, rate, now), after, now)


def _throttled(was: Protection, rate: float, now: float) -> Protection:
    return replace(
        was,
        state=State.THROTTLED,
        per_second=was.bounded(rate),
        tokens=0.0,
        refilled=now,
        adjusted_at=now,
        window=replace(was.window, used=0, since=now),
    )


def _is_fenced(was: Protection, now: float) -> bool:
    is_throttled = was.state is State.THROTTLED
    return is_throttled and was.decreased_at is not None and now - was.decreased_at < FENCE


def _learned(was: Protection, now: float) -> Protection:
    """Raise the rate to BACK times the successes, which other daemons may report late."""
    if was.last_max:
        return was
    rate = max(was.per_second, BACK * was.window.ok_per_second(now))
    return replace(was, per_second=was.bounded(rate))


def _decreased(was: Protection, now: float) -> Protection:
    is_throttled = was.state is State.THROTTLED
    if _is_fenced(was, now):
        return _learned(was, now)
    ok = was.window.ok_per_second(now)
    rate = was.per_second if is_throttled else float("inf")
    found = _throttled(was, BACK * min(rate, ok), now)
    # If the downstream was healthy until now, only one daemon has reported its successes yet.
    last_max = min(rate, ABOVE * ok) if is_throttled else 0.0
    return replace(found, last_max=last_max, decreased_at=now)


def _adjusted(was: Protection, now: float) -> Protection:
    """Once a second, raise the rate if it was used up. Close if it was long not used up."""
    rate, window = was.per_second, was.window
    passed = now - max(window.since, was.not_before or 0.0)
    if passed < max(1.0, 1 / rate):
        return was
    fresh = replace(was, window=replace(window, used=0, since=now))
    if window.used < max(1, int(USED * rate * passed)):
        last = max(was.adjusted_at or 0.0, was.decreased_at or 0.0)
        return closed(was, now) if now - last >= UNUSED else fresh
    higher = fresh.bounded(_raised(fresh, min(passed, 2.0)))
    is_back = was.last_max > 0 and higher >= BACK * was.last_max
    trips = 0 if is_back else was.trips
    return replace(fresh, per_second=higher, adjusted_at=now, trips=trips)


def _raised(was: Protection, passed: float) -> float:
    """Return the new rate after it was used up for ``passed`` seconds."""
    rate, last = was.per_second, was.last_max
    if was.trips and (not last or rate < BACK * last):
        return 2 * rate if not last else min(2 * rate, BACK * last)
    if rate < NEAR * last:
        return min(rate * (1 + FAST * passed), NEAR * last)
    if rate < BEYOND * last:
        return rate * (1 + SLOW * passed)
    return rate * (1 + FAST * passed)
