"""The messages that ATP writes to the log of schedules, and to their slots.

They are for people; see :mod:`.log_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from . import log_messages, sentences

if TYPE_CHECKING:
    from ..store.values import Fill


def declared(*, is_new: bool, is_set: bool) -> str:
    """``is_set`` tells whether the schedule keeps the values that an operator has set."""
    said = "declared" if is_new else "declared again"
    return f"{said}; the values set by an operator stay" if is_set else said


def changed(changes: Mapping[str, tuple[object, object]], *, is_new: bool) -> str:
    """``changes`` are pairs by name: the old value and the new one."""
    if is_new:
        return "created"
    return log_messages.parameters(changes) if changes else "set again, with the same values"


def left() -> str:
    return "left to the code: its declaration holds again"


def retired() -> str:
    return "retired: no code declares it any more"


def paused(reason: str, until: datetime | None) -> str:
    end = f" until {sentences.in_utc(until)}" if until else ""
    return f"paused{end}{f': {reason}' if reason else ''}"


def resumed() -> str:
    return "resumed"


def run(uuid: UUID) -> str:
    return f"run now as Instance {uuid}"


def backfilled(count: int) -> str:
    return f"backfilled: {count} slot{'' if count == 1 else 's'}"


def deleted() -> str:
    return "deleted"


# Slots.


def slot_paused(by: str, reason: str) -> str:
    who = f" by {by}" if by else ""
    return f"paused{who}{f': {reason}' if reason else ''}"


def slots_missed(count: int, late: timedelta, *, is_more: bool) -> str:
    """``late`` is the delay with which the first slot was found."""
    more = "more than " if is_more else ""
    slots = f"{more}{count} slot{'' if count == 1 else 's'}"
    return f"{slots} not planned in time, the first {late.total_seconds():.0f} s late"


def slot_skipped(uuid: UUID | None) -> str:
    """``uuid`` is that of the Instance that had not ended; None for that of the slot before."""
    return f"{uuid or 'the Instance of the slot before'} has not ended"


def slot_passed_over() -> str:
    return "a later slot was due too, and would have cancelled this one"


def slot_full(waiting: int) -> str:
    return f"{waiting} Instances of the schedule waited already, and no more may wait"


def slot_no_room(fill: Fill) -> str:
    return f"{sentences.where(fill.type, fill.collection)} was full: {fill.waiting} waited"


def slot_in_line(behind: int, cancelled: int) -> str:
    """``behind`` is how many Instances it waits for, ``cancelled`` how many it has cancelled."""
    if cancelled:
        return f"earlier Instances cancelled: {cancelled}"
    return f"waits behind {behind}" if behind else ""


def slot_backfilled(more: str = "") -> str:
    return f"backfilled, {more}" if more else "backfilled"
