"""The verbs of schedules: create, change, pause, run now, backfill, delete."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .. import contracts
from ..conf import settings
from ..exceptions import IllegalSchedule, InvalidSchedule, UnknownSchedule
from ..models import Schedule, Slot
from ..payload import codec
from ..payload.codec import Payload
from ..payload.hooks import STATES, read
from ..store import get_store
from ..store.values import Planned
from ..store.values.schedules import timing_of
from ..words.hints import did_you_mean
from ..words.options import check_text, instant
from .actor import check_by
from .migrated import needs_tables
from .registry import is_identifier
from .schedule_specs import LENGTHS, SLOT, changes_of, declared, naming, spec_of
from .types import declared as declared_type

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType
    from ..models import Instance
    from ..store.values import ScheduleSpec


# A backfill takes this many slots at most.
MOST_BACKFILLED = 10_000


@needs_tables
def create_schedule(identifier: str, type: str, *, by: str = "", **given: Any) -> Schedule:
    """Create a schedule of a Type that this process declares.

    ``given`` are the parameters of :func:`atp.schedule`. Raises InvalidSchedule, InvalidInputs,
    UnknownType, or ScheduleChanged if a schedule with this identifier exists.
    """
    check_by(by)
    task_type = declared_type(str(type))
    spec = spec_of(identifier, task_type, **given)
    _check_contract(task_type, spec, given)
    return get_store().schedules.set(spec, who=by, expected=0)


@needs_tables
def change_schedule(
    identifier: str, *, expected: int | None = None, by: str = "", **changes: Any
) -> Schedule:
    """Change the given parameters of a schedule; the change outlives deploys.

    ``expected`` is the revision that the schedule must have. Raises what :func:`create_schedule`
    raises, UnknownSchedule, or ScheduleChanged.
    """
    check_by(by)
    row = get_schedule(identifier)
    if not changes:
        raise InvalidSchedule("Nothing to change.")
    task_type = declared_type(row.type.identifier)
    spec = spec_of(identifier, task_type, **_given_of(row) | changes_of(changes))
    _check_contract(task_type, spec, changes)
    return get_store().schedules.set(spec, who=by, expected=expected)


def _check_contract(task_type: TaskType, spec: ScheduleSpec, given: Mapping[str, Any]) -> None:
    """Check the given inputs against the contract of their Type. Raises InvalidInputs."""
    if "inputs" in given:
        slot = {SLOT: datetime(2000, 1, 1, tzinfo=UTC)} if spec.takes_slot else {}
        contracts.require(task_type, (), {**(given["inputs"] or {}), **slot})


@needs_tables
def leave_schedule(identifier: str, *, by: str = "") -> Schedule:
    """Undo what operators have changed: from the next registration on, the code's parameters hold.

    If this process declares the schedule, it is registered at once.
    """
    check_by(by)
    row = get_store().schedules.leave(identifier, who=by)
    if identifier in declared:
        get_store().schedules.declare([s for s in declared if s.identifier == identifier], who=by)
        row.refresh_from_db(using=settings.DATABASE)
    return row


@needs_tables
def pause_schedule(
    identifier: str,
    *,
    reason: str = "",
    until: datetime | timedelta | None = None,
    by: str = "",
) -> Schedule:
    """Pause a schedule, until ``until`` or its resumption; its slots are recorded as PAUSED."""
    check_by(by)
    store = get_store()
    with naming("reason"):
        check_text("reason", reason)
    with naming("until"):
        until = instant("until", until, store.now)
    if until is not None and until <= store.now():
        raise InvalidSchedule(f"until={until} has passed.", parameter="until")
    return store.schedules.pause(identifier, who=by, reason=reason, until=until)


@needs_tables
def resume_schedule(identifier: str, *, by: str = "") -> Schedule:
    """Resume a paused schedule, from its first slot after now."""
    check_by(by)
    return get_store().schedules.resume(identifier, who=by)


@needs_tables
def run_schedule(identifier: str, *, by: str = "") -> Instance:
    """Enqueue an Instance of a schedule now, in addition to its slots; return the Instance."""
    check_by(by)
    return get_store().schedules.run(identifier, who=by)


@needs_tables
def backfill_schedule(
    identifier: str,
    start: datetime | timedelta,
    end: datetime | timedelta | None = None,
    *,
    by: str = "",
) -> Planned:
    """Enqueue Instances for the past slots from ``start`` to ``end``, both included.

    ``end`` defaults to now. Slots that have run already are left out. Raises InvalidSchedule
    if there are more than 10,000 slots.
    """
    check_by(by)
    row, now = get_schedule(identifier), get_store().now()
    own = timing_of(row)
    since, until = _passed("start", start, now), _passed("end", now if end is None else end, now)
    if since > until:
        raise InvalidSchedule(f"start={since} is later than end={until}.", parameter="start")
    slots = own.slots(since - timedelta.resolution, until, MOST_BACKFILLED + 1)
    if len(slots) > MOST_BACKFILLED:
        raise InvalidSchedule(
            f"start={since}: from there to {until} are more than {MOST_BACKFILLED} slots. "
            "Take a part of them.",
            parameter="start",
        )
    return get_store().schedules.backfill(identifier, slots, who=by)


def _passed(name: str, given: datetime | timedelta, now: datetime) -> datetime:
    with naming(name):
        time = instant(name, given, lambda: now)
    if time is None or time > now:
        raise InvalidSchedule(f"{name}={time} has not passed.", parameter=name)
    return time


@needs_tables
def delete_schedule(identifier: str, *, by: str = "") -> None:
    """Remove a schedule and the record of its slots; its Instances stay.

    Raises IllegalSchedule if code declares it, because registration would create it again.
    """
    check_by(by)
    row = get_schedule(identifier)
    if row.declared is not None and row.retired is None:
        raise IllegalSchedule(f"{identifier!r} is declared by code: pause it, or remove it there.")
    get_store().schedules.delete(identifier, who=by)


@needs_tables
def retire_schedules(*, by: str = "") -> list[str]:
    """Retire schedules that code once declared and this process does not; return their identifiers.

    A retired schedule gets no new slots.
    """
    check_by(by)
    return get_store().schedules.retire({spec.identifier for spec in declared}, who=by)


@needs_tables
def schedules() -> list[Schedule]:
    """Return all schedules, sorted by identifier."""
    return list(Schedule.objects.using(settings.DATABASE).select_related("type"))


@needs_tables
def get_schedule(identifier: str) -> Schedule:
    """Return the schedule. Raises UnknownSchedule, which suggests the closest identifier."""
    rows = Schedule.objects.using(settings.DATABASE).select_related("type")
    found = rows.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = rows.values_list("identifier", flat=True)
        hint = did_you_mean(str(identifier), known)
        raise UnknownSchedule(f"There is no schedule {identifier!r}.{hint}")
    return found


@needs_tables
def slots(identifier: str, *, limit: int = 200) -> list[Slot]:
    """Return the latest ``limit`` Slots of a schedule, newest first."""
    rows = Slot.objects.using(settings.DATABASE).filter(schedule=get_schedule(identifier))
    return list(rows.order_by("-at")[:limit])


def _given_of(row: Schedule) -> dict[str, Any]:
    """Return the row of a schedule as keyword arguments for :func:`spec_of`.

    A pickle stays closed: it may run code of whoever could write to the table.
    """
    names = (
        *("every", "timezone", "missed", "most", "overlap", "priority", "collection"),
        *("start_before", "timeout", *LENGTHS),
    )
    hooks = read(row.hooks)
    stored = Payload(row.format, row.data)
    inputs = codec.decode(stored) if row.format == codec.JSON else stored
    return {name: getattr(row, name) for name in names} | {
        "cron": row.cron or None,
        "inputs": inputs,
        **{on: [hook for hook in hooks if hook.on == on] or None for on in STATES},
    }
