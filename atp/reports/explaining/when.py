"""The estimate of the start, in words."""

from __future__ import annotations

from datetime import timedelta

from ...words import wording
from .values import Estimate


def starts(estimate: Estimate | None) -> str:
    """Return "Starts in about 2 min (1 to 6).", or why that is unknown; "" without an estimate."""
    if estimate is None:
        return ""
    if estimate.why == "many" and estimate.low is not None:
        if estimate.likely is None:
            return f"Starts in {_rounded(estimate.low)} at the earliest: many are before it."
        return f"Starts in about {_rounded(estimate.likely)}, or later: many wait in other lanes."
    if estimate.low is None or estimate.likely is None or estimate.high is None:
        return _OPEN.get(estimate.why, "Nobody knows when it starts: something has to be done.")
    low, likely, high = map(_rounded, (estimate.low, estimate.likely, estimate.high))
    unit = likely.split()[-1]
    if low == high:
        return f"Starts in about {likely}."
    if unit == low.split()[-1] == high.split()[-1]:
        return f"Starts in about {likely} ({low.split()[0]} to {high.split()[0]})."
    return f"Starts in about {likely} ({low} to {high})."


_OPEN = {
    "no-figures": "Nobody can tell when it starts: nothing of its Type has ended of late.",
    "blocked": "Nobody knows when it starts: what it waits for has to end first.",
    "in-line": "Nobody knows when it starts: what is before it in its line has to end first.",
}


def _rounded(value: timedelta) -> str:
    """Return a duration in words; below a second, in seconds with one decimal."""
    if value < timedelta(seconds=1):
        return f"{max(0.0, value.total_seconds()):.1f} s"
    return wording.duration(value)
