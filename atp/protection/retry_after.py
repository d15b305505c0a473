"""The HTTP header Retry-After (RFC 9110, 10.2.3): seconds, or a date."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from django.conf import settings as project
from django.utils import timezone

# The longest delay that is accepted, in seconds: an hour, whatever the downstream asks for.
LONGEST = 3600.0


class Asked(NamedTuple):
    """The delay that a downstream asks for, in seconds; ``told`` says how ATP has corrected it."""

    after: float | None
    told: str = ""


def read(value: object, now: datetime) -> Asked:
    """Return the delay that a value of Retry-After asks for; ``after`` is None if it asks for none.

    The value is a number of seconds (also as text), an HTTP date, a datetime or a timedelta. A
    datetime without a zone is local if USE_TZ is off, else in UTC. A past time gives 0. A value
    that cannot be read gives None and raises nothing, because it comes from another system.
    """
    if value is None or value == "":
        return Asked(None)
    seconds = _seconds(value, now)
    if seconds is None or math.isnan(seconds):
        return Asked(None, f"Retry-After {_shown(value)} cannot be read")
    if seconds < 0:
        return Asked(0.0, f"Retry-After {_shown(value)} has passed")
    if seconds > LONGEST:
        return Asked(LONGEST, f"Retry-After {_shown(value)} is cut to {LONGEST:.0f} s")
    return Asked(seconds)


def _shown(value: object) -> str:
    try:
        return repr(str(value)[:60])
    except ValueError:  # an integer with more digits than Python writes
        return "with too many digits"


def _seconds(value: object, now: datetime) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int):
        # A float has no room for larger integers.
        return float(max(-LONGEST, min(value, 2 * LONGEST)))
    if isinstance(value, float):
        return value
    if isinstance(value, datetime):
        is_local = timezone.is_naive(value) and not project.USE_TZ
        time = timezone.make_aware(value) if is_local else _aware(value)
        return (time - now).total_seconds()
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
