"""The rules for calls to a downstream: when the rate falls, when the breaker opens, when to probe.

The rate follows AIMD and remembers its last maximum, as TCP's CUBIC does (RFC 9438). The circuit
breaker is that of M. Nygard, "Release It!". Nothing here reads a clock or a database: times are
seconds since the epoch, rates are calls a second, and ``spread`` is a random number from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

# The length of a window, in seconds.
LENGTH = 5
# The lowest rate, unless an operator has set another.
LOWEST = 0.5
# The burst: handlers may start at once the calls that the rate allows in this time, in seconds.
BURST = 0.25
# A refusal lowers the rate to BACK times the successes a second, at most once in FENCE seconds.
BACK, FENCE = 0.7, 2.0
# The last maximum is at most this many times the successes a second.
ABOVE = 1.3
# A rate rises if handlers used the fraction USED of it: by the fraction FAST or SLOW each second.
USED, FAST, SLOW = 0.8, 0.10, 0.01
# It rises slowly between these fractions of the last maximum.
NEAR, BEYOND = 0.9, 1.1
# The breaker closes if handlers did not use up the rate for this long, in seconds.
UNUSED = 600.0
# This many failures open the breaker: in a row, or as half of all calls in the window.
FAILURES = 10
# The time for which the breaker is open, in seconds: at first, then twice as long each time, and at
# most; and the fraction by which it varies.
FIRST, LONGEST, SPREAD = 1.0, 300.0, 0.2
# The time after which a probe that no daemon holds is given up, in seconds.
PROBE = 2.0
# The rate after a successful probe.
AFTER_PROBE = 1.0


# The window of a Downstream: the ends of calls in the last seconds, from all daemons.


class Second(NamedTuple):
    """The calls that ended in one second; ``at`` is its beginning, in seconds since the epoch."""

    at: int
    ok: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """Counts the calls that ended in the last ``LENGTH`` seconds, by result.

    ``seconds`` has the counts of each second. ``row`` is the number of failures in a row. ``used``
    is the number of tokens that were spent since the time ``since``.
    """

    seconds: tuple[Second, ...] = ()
    row: int = 0
    used: int = 0
    since: float = 0.0

    @classmethod
    def read(cls, column: dict[str, Any]) -> Self:
        """Return the window that the dictionary ``column``, from the JSON column, describes."""
        seconds = tuple(Second(*each) for each in column.get("seconds", ()))
        return cls(
            seconds=seconds,
            row=column.get("row", 0),
            used=column.get("used", 0),
            since=column.get("since", 0.0),
        )

    def written(self) -> dict[str, Any]:
        """Return the window as a dictionary for the JSON column."""
        seconds = [list(each) for each in self.seconds]
        return {"seconds": seconds, "row": self.row, "used": self.used, "since": self.since}

    def added(self, more: Iterable[Second], now: float) -> Window:
        """Return the window with the calls in ``more``, and without calls older than LENGTH."""
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
        """Return the number of successful calls a second, as an average over the window."""
        if not self.seconds:
            return 0.0
        covered = min(float(LENGTH), max(1.0, now - self.seconds[0].at))
        return sum(each.ok for each in self.seconds) / covered


# The state of a downstream, and the report of a daemon about it.


class State(StrEnum):
    CLOSED = "closed"
    THROTTLED = "throttled"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Verdict(StrEnum):
    """What the end of an attempt says about the downstream."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    # The attempt ended in another way, which tells nothing about the downstream.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A daemon's report about the calls that ended since its last report.

    ``counts`` has a tuple for each second with calls: its age in seconds, and the numbers of calls
    that succeeded, were refused, and failed. ``row`` is the number of failures in a row at the end;
    ``had_ok`` is True if a call before them succeeded. ``after`` is the longest delay in seconds
    that the downstream asked for. ``probe`` is the key of the Instance that probed, with its
    :class:`Verdict`.
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
        """Return the counts as a tuple of :class:`Second`.

        ``now`` is the present time by this process's clock, in seconds since the epoch.
        """
        return tuple(Second(int(now - age), *numbers) for age, *numbers in self.counts)


@dataclass(frozen=True, kw_only=True)
class Protection:
    """The state of a downstream for all daemons: the columns of :class:`atp.models.Downstream`."""

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
        """Return a rate, limited to the range from the floor to the ceiling."""
        lowest = LOWEST if self.floor is None else self.floor
        rate = max(rate, lowest)
        return rate if self.ceiling is None else min(rate, self.ceiling)

    def burst(self) -> float:
        return max(1.0, BURST * self.per_second)

    def available(self, now: float) -> float:
        """Return the number of tokens, which may exceed the burst by less than one token."""
        if self.refilled is None:
            return self.burst()
        most = self.burst() + min(0.99, BURST * self.per_second)
        return min(most, self.tokens + max(0.0, now - self.refilled) * self.per_second)

    def opens_in(self, now: float) -> float:
        """Return the time in seconds until the next call is allowed."""
        if self.state is State.CLOSED or self.not_before is None:
            return 0.0
        return max(0.0, self.not_before - now)


# The rules: each function returns the Protection after an event.


def apply_report(was: Protection, report: Report, now: float, *, spread: float = 0.0) -> Protection:
    """Return the Protection after a daemon has reported the results of calls."""
    is_shut = was.state in (State.OPEN, State.HALF_OPEN)
    if is_shut:
        if was.state is State.HALF_OPEN and report.probe and report.probe[0] == was.probe:
            return _end_probe(was, report.probe[1], report.after, now, spread)
        # All other calls began before the breaker opened, so they tell nothing new.
        return _defer_calls(was, report.after, now)
    window = was.window.added(report.seconds(now), now)
    row = report.row if report.had_ok else was.window.row + report.row
    found = _defer_calls(replace(was, window=replace(window, row=row)), report.after, now)
    if _is_outage(found.window):
        return open_breaker(found, now, spread=spread)
    if report.refused:
        return _lower_rate(found, now)
    if found.state is State.CLOSED:
        return found
    return _adjust_rate(_raise_to_successes(found, now) if _is_fenced(found, now) else found, now)


def spend_tokens(was: Protection, count: int, now: float) -> Protection:
    """Return the Protection after ``count`` calls have been allowed."""
    window = replace(was.window, used=was.window.used + count)
    tokens = was.available(now) - count
    return replace(was, tokens=tokens, refilled=now, window=window)


def start_probe(was: Protection, instance: int, now: float) -> Protection:
    """Return the Protection while an Instance probes the downstream."""
    return replace(was, state=State.HALF_OPEN, probe=instance, not_before=now + PROBE)


def open_breaker(was: Protection, now: float, *, spread: float = 0.0) -> Protection:
    """Return the Protection with an open breaker: no calls for a while, and then one probe."""
    length = min(LONGEST, FIRST * 2.0 ** min(was.trips, 20)) * (1 + SPREAD * spread)
    # A rate that still rises after an outage tells nothing about the maximum.
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


def close_breaker(was: Protection, now: float) -> Protection:
    """Return the Protection for a healthy downstream; a ceiling still limits the rate."""
    fresh = Protection(ceiling=was.ceiling, floor=was.floor)
    return fresh if was.ceiling is None else _throttle(fresh, was.ceiling, now)


def apply_limits(was: Protection, now: float) -> Protection:
    """Return the Protection after an operator has set the floor or the ceiling."""
    if was.state is State.CLOSED and was.ceiling is not None:
        return _throttle(was, was.ceiling, now)
    if was.state is State.THROTTLED and _is_healthy(was):
        return close_breaker(was, now)
    return replace(was, per_second=was.bounded(was.per_second)) if was.per_second else was


def delay_until_call(after: float | None, opens_in: float, chance: float) -> float:
    """Return the delay in seconds until a refused or failed attempt may call again.

    ``chance`` is a random number from 0 to 1. It spreads out attempts that failed together.
    """
    longest = max(opens_in, after or 0.0, 0.5)
    return longest + chance * max(1.0, 0.2 * longest)


def _is_healthy(was: Protection) -> bool:
    """Return True if only a ceiling limits the rate: no call was refused or has failed."""
    return not (was.decreased_at or was.not_before or was.last_max or was.trips)


def _is_outage(window: Window) -> bool:
    is_half = window.failed >= FAILURES and 2 * window.failed >= window.total
    return window.row >= FAILURES or is_half


def _defer_calls(was: Protection, after: float | None, now: float) -> Protection:
    if not after or was.state is State.HALF_OPEN:
        return was
    return replace(was, not_before=max(now + after, was.not_before or 0.0))


def _end_probe(
    was: Protection, verdict: Verdict, after: float | None, now: float, spread: float
) -> Protection:
    if verdict is Verdict.FAILED:
        return _defer_calls(
            open_breaker(replace(was, not_before=None), now, spread=spread), after, now
        )
    if verdict is Verdict.UNKNOWN:
        return replace(was, state=State.OPEN, probe=None, not_before=now)
    fresh = replace(was, probe=None, not_before=None)
    rate = AFTER_PROBE if verdict is Verdict.OK else LOWEST
    return _defer_calls(_throttle(fresh, rate, now), after, now)


def _throttle(was: Protection, rate: float, now: float) -> Protection:
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


def _raise_to_successes(was: Protection, now: float) -> Protection:
    """Raise the rate to BACK times the rate of successful calls, if it is lower.

    This matters because daemons may report successes after a refusal has lowered the rate.
    """
    if was.last_max:
        return was
    rate = max(was.per_second, BACK * was.window.ok_per_second(now))
    return replace(was, per_second=was.bounded(rate))


def _lower_rate(was: Protection, now: float) -> Protection:
    is_throttled = was.state is State.THROTTLED
    if _is_fenced(was, now):
        return _raise_to_successes(was, now)
    ok = was.window.ok_per_second(now)
    rate = was.per_second if is_throttled else float("inf")
    found = _throttle(was, BACK * min(rate, ok), now)
    # If the downstream was healthy until now, only one daemon has reported its successes so far.
    last_max = min(rate, ABOVE * ok) if is_throttled else 0.0
    return replace(found, last_max=last_max, decreased_at=now)


def _adjust_rate(was: Protection, now: float) -> Protection:
    """Adjust the rate, at most once a second.

    The rate rises if handlers used it up. If they have not used it up for a long time, the breaker
    closes.
    """
    rate, window = was.per_second, was.window
    passed = now - max(window.since, was.not_before or 0.0)
    if passed < max(1.0, 1 / rate):
        return was
    fresh = replace(was, window=replace(window, used=0, since=now))
    if window.used < max(1, int(USED * rate * passed)):
        last = max(was.adjusted_at or 0.0, was.decreased_at or 0.0)
        return close_breaker(was, now) if now - last >= UNUSED else fresh
    higher = fresh.bounded(_higher_rate(fresh, min(passed, 2.0)))
    is_back = was.last_max > 0 and higher >= BACK * was.last_max
    trips = 0 if is_back else was.trips
    return replace(fresh, per_second=higher, adjusted_at=now, trips=trips)


def _higher_rate(was: Protection, passed: float) -> float:
    """Return the next, higher rate, after handlers used up the rate for ``passed`` seconds."""
    rate, last = was.per_second, was.last_max
    if was.trips and (not last or rate < BACK * last):
        return 2 * rate if not last else min(2 * rate, BACK * last)
    if rate < NEAR * last:
        return min(rate * (1 + FAST * passed), NEAR * last)
    if rate < BEYOND * last:
        return rate * (1 + SLOW * passed)
    return rate * (1 + FAST * passed)
