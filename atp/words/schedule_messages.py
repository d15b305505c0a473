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


def rules_changed(before: datetime, after: datetime) -> str:
    """``before`` and ``after`` are the next slot by the old and by the new rules."""
    moved = f"{sentences.in_utc(before)} to {sentences.in_utc(after)}"
    return f"the rules of its time zone have changed: the next slot moves from {moved}"


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


def slots_unknown(reason: str) -> str:
    """``reason`` says why the slots of a schedule cannot be computed."""
    return f"not planned in time; the slots after it are unknown: {reason}"


def slot_skipped(uuid: UUID) -> str:
    """``uuid`` is that of the Instance that had not ended."""
    return f"{uuid} has not ended"


def slot_passed_over(overlap: str) -> str:
    """``overlap`` is the policy of the schedule, which lets only one of the due slots run."""
    return f"a later slot was due too, and runs instead: overlap is {overlap}"


def slot_full(waiting: int) -> str:
    return f"{waiting} Instances of the schedule wait, and no more may"


def slot_no_room(fill: Fill) -> str:
    return f"{sentences.where(fill.type, fill.collection)} was full: {fill.waiting} waited"


def slot_in_line(behind: int, cancelled: int) -> str:
    """``behind`` is how many Instances it waits for, ``cancelled`` how many it has cancelled."""
    if cancelled:
        return f"earlier Instances cancelled: {cancelled}"
    return f"waits behind {behind}" if behind else ""


def slot_backfilled(more: str = "") -> str:
    return f"backfilled, {more}" if more else "backfilled"
