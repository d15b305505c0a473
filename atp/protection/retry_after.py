"""The field Retry-After of HTTP (RFC 9110, 10.2.3): seconds, or a date."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

# A downstream is left alone for an hour at most, whatever it asks for, in seconds.
LONGEST = 3600.0


class Asked(NamedTuple):
    """The delay that was asked for, in seconds; ``told`` says what was changed of it."""

    after: float | None
    told: str = ""


def read(value: object, now: datetime) -> Asked:
    """Return the delay that a value of Retry-After stands for; None where it says nothing.

    It is a number of seconds, text of one, a date of HTTP, a datetime or a timedelta. What has
    passed is 0. What cannot be read says nothing, for it comes from somebody else; nothing is
    raised.
    """
    if value is None or value == "":
        return Asked(None)
    seconds = _seconds(value, now)
    if seconds is None or math.isnan(seconds):
        return Asked(None, f"Retry-After {str(value)[:60]!r} cannot be read")
    if seconds < 0:
        return Asked(0.0, f"Retry-After {str(value)[:60]!r} has passed")
    if seconds > LONGEST:
        return Asked(LONGEST, f"Retry-After {str(value)[:60]!r} is cut to {LONGEST:.0f} s")
    return Asked(seconds)


def _seconds(value: object, now: datetime) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, datetime):
        return (_aware(value) - now).total_seconds()
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        return _until(value, now)


def _until(text: str, now: datetime) -> float | None:
    try:
        return (_aware(parsedate_to_datetime(text)) - now).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
