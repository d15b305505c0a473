"""Create, change, pause, run now, backfill, delete; their entries in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .. import contracts, text
from ..authoring.task_type import declared as declared_type
from ..conf import settings
from ..exceptions import IllegalSchedule, InvalidSchedule, UnknownSchedule
from ..models import Schedule, Slot
from ..operations.base import check_by, needs_tables
from ..operations.operation import (
    CONTROL,
    ENQUEUE,
    OPERATE,
    PRIORITY,
    TIMEOUT,
    Choice,
    Delay,
    Inputs,
    Moment,
    Parameter,
    Past,
    Text,
    Verb,
    WholeNumber,
    always,
)
from ..operations.registry import is_identifier, sensitive_names
from ..options import check_text, instant
from ..payload import codec
from ..payload.binding import masked_json
from ..payload.codec import Payload
from ..store import get_store
from ..store.values.hooks import STATES, read
from ..store.values.schedules import Planned, timing_of
from ..text import did_you_mean
from .declaring import LENGTHS, MOST_MISSED, SLOT, changes_of, declared, naming, spec_of
from .models import Missed, Overlap

if TYPE_CHECKING:
    from ..models import Instance
    from ..operations.registry import Declaration
    from ..store.values.schedules import ScheduleSpec


# The verbs of schedules: create, change, pause, run now, backfill, delete.

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


def _check_contract(task_type: Declaration, spec: ScheduleSpec, given: Mapping[str, Any]) -> None:
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


# The verbs on schedules.


@dataclass(frozen=True, kw_only=True)
class ScheduleVerb(Verb):
    """A verb on a schedule. ``is_allowed(schedule)`` tells whether it would change anything."""

    is_allowed: Callable[[Schedule], bool] = always
    permission: str = CONTROL


def _current(schedule: Schedule) -> dict[str, Any]:
    """Return the initial values of a form for the parameters, as text that their kinds read."""
    names = ("cron", "timezone", "missed", "most", "overlap", "priority", "collection")
    lengths = ("every", "window", "late_after", "jitter", "start_before", "timeout")
    found = {name: getattr(schedule, name) for name in names}
    found |= {name: text.written(getattr(schedule, name)) for name in lengths}
    return found | {"inputs": Inputs.text_of(_inputs(schedule))}


def _inputs(schedule: Schedule) -> Any:
    if schedule.format != codec.JSON:
        return {}
    shown = masked_json(schedule.data, sensitive_names(schedule.type))
    return codec.decode(Payload(schedule.format, shown))


def _change(schedule: Schedule, *, by: str, **changes: Any) -> Schedule | None:
    if not changes:
        return None
    return change_schedule(schedule.identifier, by=by, **changes)


def _changed(_: Schedule, changed: Schedule | None) -> str:
    if changed is None:
        return "Nothing was changed."
    return f"It is changed. The next slot is {text.moment(changed.next_at)}."


def _paused(_: Schedule, row: Schedule) -> str:
    if row.was_paused is None:
        return "It is paused."
    by, reason = row.was_paused
    return f"It is paused. Before, it was paused{_given(' by ', by)}{_given(': ', reason)}."


def _is_paused(schedule: Schedule) -> bool:
    return schedule.is_paused(schedule.now or get_store().now())


def _given(before: str, text: str) -> str:
    return before + text if text else ""


def _backfilled(_: Schedule, planned: Planned) -> str:
    return f"Instances enqueued: {planned.enqueued}."


# What a schedule says, as it is made or changed.
PARAMETERS = (
    Parameter(name="cron", kind=Text(), help='Five fields, as "30 2 * * *", or as "@daily".'),
    Parameter(
        name="every",
        kind=Delay(),
        help="Instead of cron, aligned to the Unix epoch: the time between slots.",
    ),
    Parameter(
        name="timezone", kind=Text(), help="Time zone of the cron expression, as Europe/Vienna."
    ),
    Parameter(name="inputs", kind=Inputs(), help="Keyword arguments of the handler."),
    Parameter(
        name="missed",
        kind=Choice(tuple(Missed.values)),
        help="Which missed slots to run: none, the newest, or the newest few.",
    ),
    Parameter(
        name="most",
        kind=WholeNumber(1, MOST_MISSED),
        help="With missed=all, the most missed slots that are run; with overlap=queue, the most "
        "Instances that wait, up to 100.",
    ),
    Parameter(name="window", kind=Delay(), help="Missed slots older than this are not run."),
    Parameter(
        name="late_after", kind=Delay(), help="A slot that is later than this counts as missed."
    ),
    Parameter(
        name="overlap",
        kind=Choice(tuple(Overlap.values)),
        help="While the last Instance has not ended: run beside it, skip the slot, wait for its "
        "end, or cancel it.",
    ),
    Parameter(name="jitter", kind=Delay(), help="The longest delay by which slots are spread."),
    Parameter(name="priority", kind=PRIORITY, help="Priority of the Instances."),
    Parameter(name="collection", kind=Text(), help="Collection of the Instances."),
    Parameter(
        name="start_before",
        kind=Delay(1),
        help="An Instance that has not started this long after its slot is FAILED (MISSED).",
        can_be_none=True,
    ),
    Parameter(
        name="timeout",
        kind=TIMEOUT,
        help="Time-out of the Instances, instead of that of the Type.",
        can_be_none=True,
    ),
)
REVISION = Parameter(
    name="expected",
    kind=WholeNumber(0, 2**31 - 1),
    help="Change nothing unless the schedule has this revision.",
    in_forms=False,
)

VERBS: tuple[ScheduleVerb, ...] = (
    ScheduleVerb(
        name="run",
        label="Run now",
        phrase="Run {} now",
        explanation="Enqueue an Instance now, beside the slots. With overlap=queue it waits for "
        "the schedule's live Instances; with overlap=cancel they are cancelled.",
        call=lambda schedule, by: run_schedule(schedule.identifier, by=by),
        told=lambda _, instance: f"{instance.uuid} is enqueued.",
        is_allowed=lambda schedule: schedule.retired is None,
        permission=OPERATE,
    ),
    ScheduleVerb(
        name="pause",
        label="Pause",
        explanation="Pause the schedule: its slots pass, and are recorded as PAUSED.",
        call=lambda schedule, **given: pause_schedule(schedule.identifier, **given),
        told=_paused,
        parameters=(
            Parameter(name="reason", kind=Text(), help="Why, for the log and the pages."),
            Parameter(name="until", kind=Moment(), help="When the schedule resumes by itself."),
        ),
        is_allowed=lambda schedule: schedule.retired is None and not _is_paused(schedule),
    ),
    ScheduleVerb(
        name="resume",
        label="Resume",
        explanation="Resume the schedule with its first slot after now.",
        call=lambda schedule, by: resume_schedule(schedule.identifier, by=by),
        told=lambda _, row: f"It goes on. The next slot is {text.moment(row.next_at)}.",
        is_allowed=lambda schedule: schedule.retired is None and _is_paused(schedule),
    ),
    ScheduleVerb(
        name="change",
        label="Change",
        explanation="Change parameters of the schedule; those that are not given stay. The change "
        "outlives deploys.",
        call=_change,
        told=_changed,
        parameters=(*PARAMETERS, REVISION),
        current=_current,
        # It chooses inputs that will be enqueued.
        permission_too=ENQUEUE,
        method="PATCH",
    ),
    ScheduleVerb(
        name="backfill",
        label="Backfill",
        explanation="Enqueue the Instances of slots that have passed and were not run.",
        call=lambda schedule, **given: backfill_schedule(schedule.identifier, **given),
        told=_backfilled,
        parameters=(
            Parameter(name="start", kind=Past(), help="Slots from this time on.", is_required=True),
            Parameter(name="end", kind=Past(), help="Slots up to this time; empty means now."),
        ),
        permission=OPERATE,
    ),
    ScheduleVerb(
        name="leave",
        label="Leave to the code",
        phrase="Leave {} to the code",
        explanation="Use the schedule that the code declares, instead of what an operator has set.",
        call=lambda schedule, by: leave_schedule(schedule.identifier, by=by),
        told=lambda *_: "The schedule is as the code declares it.",
        is_allowed=lambda schedule: schedule.is_set and schedule.declared is not None,
    ),
    ScheduleVerb(
        name="delete",
        label="Delete",
        explanation="Remove the schedule and the record of its slots for good. Its Instances stay.",
        call=lambda schedule, by: delete_schedule(schedule.identifier, by=by),
        told=lambda schedule, _: f"{schedule.identifier} is removed.",
        is_final=True,
        is_allowed=lambda schedule: schedule.declared is None or schedule.retired is not None,
        method="DELETE",
    ),
)
