"""Decisions about slots: due, run, missed, paused. Nothing here queries the database."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, takewhile
from typing import Any

from ... import messages
from ...exceptions import InvalidSchedule
from ...models import Instance, Schedule, Slot
from ...payload import json as tagged_json
from ...payload.codec import Payload
from ...schedules.models import Missed, Outcome
from ...schedules.timing import Timing, jitter
from ..facts import Fill, timing_of

# At most this many slots of a schedule are looked at in one go. After a longer gap, only the
# newest ones are, backwards.
WALKED = 10_000
PAUSE = ("paused_since", "paused_until", "paused_by", "paused_reason")


@dataclass
class Plan:
    """The decisions about one due schedule, before they are written."""

    row: Schedule
    slots: list[Slot] = field(default_factory=list)
    # The slots to be run, oldest first.
    runs: list[datetime] = field(default_factory=list)
    # Whether the pause of the schedule is over.
    is_resumed: bool = False


def plan_of(row: Schedule, now: datetime) -> Plan:
    """Return the :class:`Plan` of a schedule, and move it to its next slot, in memory.

    Raises InvalidSchedule, or any other exception if the row was broken by hand.
    """
    plan, timing = Plan(row), timing_of(row)
    follow_rules(row, timing)
    slots, has_more = _due(row, timing, now)
    row.trouble = ""
    paused = [at for at in slots if _is_paused(row, at)]
    late = [at for at in slots[: _late(row, slots, now)] if not _is_paused(row, at)]
    rest = [at for at in slots if not _is_paused(row, at)][len(late) :]
    run_late, missed = _caught_up(row, late, now)
    plan.runs = run_late + rest
    plan.slots = _not_run(row, paused, missed, has_more, now)
    # Without a due slot, next_at lies in the future, or somebody has set it to what is no slot.
    next_at: Any = row.next_at
    move_on(row, timing, slots[-1] if slots else next_at - timedelta.resolution, now)
    next_at = row.next_at
    # A slot of the pause may still wait for its jitter.
    if row.paused_until is not None and row.paused_until <= min(now, next_at):
        resume(row)
        plan.is_resumed = True
    return plan


def close(row: Schedule, now: datetime) -> list[Slot]:
    """Decide the slots that have passed, running none, and move the schedule on, in memory.

    Returns the Slots. If its timing is invalid, as where the host lacks the time zone, only its
    next slot is known.
    """
    next_at: Any = row.next_at
    try:
        timing = timing_of(row)
    except InvalidSchedule as error:
        return [] if next_at > now else [_unknown(row, error)]
    follow_rules(row, timing)
    next_at = row.next_at
    since = next_at - timedelta.resolution
    slots, has_more = timing.slots(since, now, WALKED + 1), False
    if len(slots) > WALKED:
        slots = timing.newest(since, now, WALKED)[::-1]
        has_more = slots[0] != row.next_at
    paused = [at for at in slots if _is_paused(row, at)]
    missed = [at for at in slots if not _is_paused(row, at)]
    found = _not_run(row, paused, missed, has_more, now)
    move_on(row, timing, now, now)
    return found


def resume(row: Schedule) -> None:
    """End the pause of a schedule, in memory."""
    row.paused_since = row.paused_until = None
    row.paused_by = row.paused_reason = ""


def move_on(row: Schedule, timing: Timing, time: datetime, now: datetime) -> None:
    """Move a schedule to its first slot after a time, in memory."""
    row.next_at = timing.after(time)
    keep_rules(row, timing, now)
    delay(row)


def keep_rules(row: Schedule, timing: Timing, now: datetime) -> None:
    """Keep, in memory, what :func:`follow_rules` needs to notice that rules have changed."""
    next_at: Any = row.next_at
    row.planned_until = min(now, next_at - timedelta.resolution)
    row.planned_offset = timing.utc_offset(row.planned_until)


def follow_rules(row: Schedule, timing: Timing) -> bool:
    """Compute the next slot anew, in memory, if the rules of its time zone have changed.

    Returns whether it is another one.
    """
    since = row.planned_until
    was: Any = row.next_at
    if since is None or was <= since:  # of an older release, or set back by hand
        return False
    # The clock of the zone has shown the times up to here: a slot that the new rules put behind
    # this moment of the clock is not decided twice.
    offset: Any = row.planned_offset
    since += max(timedelta(), offset - timing.utc_offset(since))
    next_at = timing.after(since)
    if next_at == row.next_at:
        return False
    row.next_at = next_at
    delay(row)
    return True


def delay(row: Schedule) -> None:
    """Set the time to plan the next slot by the jitter, in memory."""
    next_at: Any = row.next_at
    row.due_at = _due_at(row, next_at)


def instance_identifier(row: Schedule, at: datetime) -> str:
    """Return the identifier for the Instance of a slot."""
    return f"{row.identifier}@{at:%Y-%m-%dT%H:%M:%SZ}"


def inputs_of(row: Schedule, at: datetime | None) -> Payload:
    """Return the inputs for an Instance; they contain the slot if the handler takes it."""
    if not row.takes_slot:
        return Payload(row.format, row.data)
    inputs = json.loads(row.data)
    inputs["slot"] = None if at is None else json.loads(tagged_json.to_json(at))
    return Payload(row.format, json.dumps(inputs))


def skipped(row: Schedule, at: datetime, running: Instance) -> Slot:
    """Return a SKIPPED Slot: the Instance ``running`` is live."""
    return Slot(
        schedule=row,
        at=at,
        outcome=Outcome.SKIPPED,
        instance_id=running.pk,
        message=messages.slot_skipped(running.uuid),
    )


def enqueued(row: Schedule, at: datetime, instance: Instance, message: str = "") -> Slot:
    """Return an ENQUEUED Slot of this Instance."""
    return Slot(
        schedule=row,
        at=at,
        outcome=Outcome.ENQUEUED,
        instance_id=instance.pk,
        message=message,
    )


def passed_over(row: Schedule, at: datetime) -> Slot:
    """Return a SKIPPED Slot: a later slot is due too, and ``overlap`` lets only one run."""
    message = messages.slot_passed_over(row.overlap)
    return Slot(schedule=row, at=at, outcome=Outcome.SKIPPED, message=message)


def full(row: Schedule, at: datetime, waiting: int) -> Slot:
    """Return a SKIPPED Slot: ``waiting`` Instances wait in the line, and no more may."""
    message = messages.slot_full(waiting)
    return Slot(schedule=row, at=at, outcome=Outcome.SKIPPED, message=message)


def no_room(row: Schedule, at: datetime, fill: Fill) -> Slot:
    """Return a SKIPPED Slot: the Type or the lane is full, as ``fill`` says."""
    message = messages.slot_queue_full(fill)
    return Slot(schedule=row, at=at, outcome=Outcome.SKIPPED, message=message[:400])


def _due_at(row: Schedule, at: datetime) -> datetime:
    return at + jitter(row.identifier, at, row.jitter.total_seconds()) if row.jitter else at


def _due(row: Schedule, timing: Timing, now: datetime) -> tuple[list[datetime], bool]:
    """Return the due slots, and whether only the newest of them are returned.

    A slot that is not due yet, because of its jitter, keeps the slots behind it waiting.
    """
    next_at: Any = row.next_at
    since = next_at - timedelta.resolution
    first = timing.slots(since, now, WALKED + 1)
    due = list(takewhile(lambda at: _due_at(row, at) <= now, first))
    if len(due) <= WALKED:
        return due, False
    # These are due even with the longest jitter.
    newest = timing.newest(since, now - row.jitter, WALKED)
    if len(newest) < WALKED:
        return due[:WALKED], False
    return newest[::-1], newest[-1] != row.next_at


def _late(row: Schedule, slots: Sequence[datetime], now: datetime) -> int:
    """Return how many slots are late; these come first, as each slot waits for those before it."""
    due = accumulate((_due_at(row, at) for at in slots), max)
    late = sum(now - at > row.late_after for at in due)
    return max(late, sum(_is_over(row, at, now) for at in slots))


def _is_over(row: Schedule, at: datetime, now: datetime) -> bool:
    """Return whether the Instance of a slot could not start in time any more."""
    return row.start_before is not None and at + row.start_before <= now


def _is_paused(row: Schedule, at: datetime) -> bool:
    if row.paused_since is None or at < row.paused_since:
        return False
    return row.paused_until is None or at < row.paused_until


def _caught_up(
    row: Schedule, late: list[datetime], now: datetime
) -> tuple[list[datetime], list[datetime]]:
    """Return the late slots to run all the same, and the missed ones, each oldest first."""
    if row.missed == Missed.SKIP or not late:
        return [], late
    runs = [at for at in late if not _is_over(row, at, now)]
    if row.missed == Missed.ONE:
        runs = runs[-1:]
    else:
        recent = [at for at in runs if now - at <= row.window]
        runs = recent[max(0, len(recent) - row.most) :]
    return runs, late[: len(late) - len(runs)]


def _not_run(
    row: Schedule, paused: list[datetime], missed: list[datetime], has_more: bool, now: datetime
) -> list[Slot]:
    """Return the Slots of those that are not run, each of both kinds oldest first."""
    found: list[Slot] = []
    next_at: Any = row.next_at
    are_more_paused = has_more and _is_paused(row, next_at)
    if are_more_paused:
        has_more, paused = False, [next_at, *paused]
    if paused:
        message = messages.slot_paused(row.paused_by, row.paused_reason)
        found.append(_row_of(row, paused, Outcome.PAUSED, message))
        found[-1].is_more = are_more_paused
    before = [at for at in missed if not paused or at < paused[0]]
    if before or has_more:
        found.append(_missed(row, before, has_more, now))
    if len(before) < len(missed):
        found.append(_missed(row, missed[len(before) :], False, now))
    return found


def _missed(row: Schedule, missed: Sequence[datetime], is_more: bool, now: datetime) -> Slot:
    first: Any = row.next_at if is_more else missed[0]
    slot = _row_of(row, missed or [first], Outcome.MISSED, "", first=first)
    slot.is_more, slot.decided = is_more, now
    tell_missed(slot)
    return slot


def tell_missed(slot: Slot) -> None:
    """Write the message of a MISSED Slot, in memory: its number or its first slot has changed."""
    if slot.outcome == Outcome.MISSED:
        late = slot.decided - slot.at
        slot.message = messages.slots_missed(slot.count, late, is_more=slot.is_more)


def _unknown(row: Schedule, error: InvalidSchedule) -> Slot:
    """Return the Slot of a next slot that has passed; those behind it cannot be computed."""
    next_at: Any = row.next_at
    if _is_paused(row, next_at):
        outcome = Outcome.PAUSED
        message = messages.slot_paused(row.paused_by, row.paused_reason)
    else:
        outcome, message = Outcome.MISSED, messages.slots_unknown(str(error))
    return _row_of(row, [next_at], outcome, message)


def _row_of(
    row: Schedule,
    slots: Sequence[datetime],
    outcome: Outcome,
    message: str,
    first: datetime | None = None,
) -> Slot:
    first = slots[0] if first is None else first
    return Slot(
        schedule=row,
        at=first,
        until=slots[-1] if slots[-1] != first else None,
        count=len(slots),
        outcome=outcome,
        message=message[:400],
    )
