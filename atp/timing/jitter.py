"""Jitter: a delay of each slot, so that schedules with the same times do not start all at once."""

import hashlib
from datetime import datetime, timedelta

from ..exceptions import LONGEST_DELAY, InvalidSchedule
from .zones import in_utc


def jitter(identifier: str, slot: datetime, seconds: float) -> timedelta:
    """Return the delay of a slot of a schedule, from 0 to ``seconds``.

    It is a hash of the schedule's identifier and the slot: the same on each host, and predictable.
    Raises InvalidSchedule.
    """
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST_DELAY:
        raise InvalidSchedule(
            f"jitter={seconds!r}: must be from 0 to {LONGEST_DELAY:.0f} seconds.",
            parameter="jitter",
        )
    text = f"{identifier}@{in_utc(slot).isoformat()}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    bound = timedelta(seconds=seconds) // timedelta.resolution
    return timedelta(microseconds=number * (bound + 1) >> 64)
