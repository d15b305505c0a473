"""Operations on schedules: create, change, pause, run now, backfill, delete."""

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
from ..operations.base import check_actor, needs_tables
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
    Operation,
    Parameter,
    Past,
    Text,
    WholeNumber,
    always,
)
from ..operations.registry import is_identifier, sensitive_names
from ..options import check_text, resolve_time
from ..payload import codec
from ..payload.binding import mask_json
from ..payload.codec import Payload
from ..store import get_store
from ..store.facts import Planned, timing_of
from ..store.values import HOOK_STATES, read_hooks
from .declaring import (
    LENGTHS,
    MOST_MISSED,
    SLOT,
    as_invalid_schedule,
    check_schedule,
    complete_changes,
    declared_schedules,
)
from .models import Missed, Overlap

if TYPE_CHECKING:
    from ..models import Instance
    from ..operations.registry import Declaration
    from ..store.facts import ScheduleSpec

# The maximum number of slots of one backfill.
MOST_BACKFILLED = 10_000


@needs_tables
def create_schedule(identifier: str, type: str, *, by: str = "", **parameters: Any) -> Schedule:
    """Create a schedule for a Type that this process declares.

    The parameters are those of :func:`atp.schedule`. Raises InvalidSchedule, InvalidInputs,
    UnknownType, or ScheduleChanged if a schedule with this identifier exists already.
    """
    check_actor(by)
    task_type = declared_type(str(type))
    spec = check_schedule(identifier, task_type, **parameters)
    _check_contract(task_type, spec, parameters)
    return get_store().schedules.set(spec, who=by, expected=0)


@needs_tables
def change_schedule(
    identifier: str, *, expected: int | None = None, by: str = "", **changes: Any
) -> Schedule:
    """Change the given parameters of a schedule. Later deploys keep these changes.

    ``expected`` is the revision that the schedule must have; None allows any revision. Raises
    UnknownSchedule, ScheduleChanged if the revision is another one, and whatever
    :func:`create_schedule` raises.
    """
    check_actor(by)
    row = get_schedule(identifier)
    if not changes:
        raise InvalidSchedule("Nothing to change.")
    task_type = declared_type(row.type.identifier)
    spec = check_schedule(
        identifier, task_type, **_read_parameters(row) | complete_changes(changes)
    )
    _check_contract(task_type, spec, changes)
    return get_store().schedules.set(spec, who=by, expected=expected)


def _check_contract(
    task_type: Declaration, spec: ScheduleSpec, parameters: Mapping[str, Any]
) -> None:
    """Check new inputs against the contract of their Type. Raises InvalidInputs."""
    if "inputs" in parameters:
        slot = {SLOT: datetime(2000, 1, 1, tzinfo=UTC)} if spec.takes_slot else {}
        contracts.require(task_type, (), {**(parameters["inputs"] or {}), **slot})


@needs_tables
def leave_schedule(identifier: str, *, by: str = "") -> Schedule:
    """Reset a schedule to the values that code declares; discard what operators have set.

    If this process declares the schedule, the values change at once, otherwise with the next
    registration. Raises UnknownSchedule, or IllegalSchedule if no code declares the schedule.
    """
    check_actor(by)
    row = get_store().schedules.leave(identifier, who=by)
    if identifier in declared_schedules:
        get_store().schedules.declare(
            [s for s in declared_schedules if s.identifier == identifier], who=by
        )
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
    """Pause a schedule until ``until``, or until somebody resumes the schedule.

    Slots during the pause do not run, and get the outcome PAUSED. Raises UnknownSchedule,
    InvalidSchedule, or IllegalSchedule if the schedule is retired.
    """
    check_actor(by)
    store = get_store()
    with as_invalid_schedule("reason"):
        check_text("reason", reason)
    with as_invalid_schedule("until"):
        until = resolve_time("until", until, store.now)
    if until is not None and until <= store.now():
        raise InvalidSchedule(f"until={until} has passed.", parameter="until")
    return store.schedules.pause(identifier, who=by, reason=reason, until=until)


@needs_tables
def resume_schedule(identifier: str, *, by: str = "") -> Schedule:
    """Resume a paused schedule; the first slot after now is the next one to run.

    Raises UnknownSchedule, or IllegalSchedule if the schedule is not paused.
    """
    check_actor(by)
    return get_store().schedules.resume(identifier, who=by)


@needs_tables
def run_schedule(identifier: str, *, by: str = "") -> Instance:
    """Enqueue an Instance of a schedule now, in addition to the slots; return the Instance.

    Raises UnknownSchedule, or IllegalSchedule if the schedule is retired.
    """
    check_actor(by)
    return get_store().schedules.run(identifier, who=by)


@needs_tables
def backfill_schedule(
    identifier: str,
    start: datetime | timedelta,
    end: datetime | timedelta | None = None,
    *,
    by: str = "",
) -> Planned:
    """Enqueue Instances for the slots of a schedule from ``start`` to ``end``, both included.

    Both times must have passed; ``end`` is by default the current time. Slots that have run already
    are left out. Raises UnknownSchedule, or InvalidSchedule, for example for more than 10,000
    slots.
    """
    check_actor(by)
    row, now = get_schedule(identifier), get_store().now()
    since = _check_passed("start", start, now)
    until = _check_passed("end", now if end is None else end, now)
    if since > until:
        raise InvalidSchedule(f"start={since} is later than end={until}.", parameter="start")
    slots = timing_of(row).slots(since - timedelta.resolution, until, MOST_BACKFILLED + 1)
    if len(slots) > MOST_BACKFILLED:
        raise InvalidSchedule(
            f"start={since}: there are more than {text.number(MOST_BACKFILLED)} slots from then "
            f"to {until}. Choose a shorter period.",
            parameter="start",
        )
    return get_store().schedules.backfill(identifier, slots, who=by)


def _check_passed(name: str, value: datetime | timedelta, now: datetime) -> datetime:
    with as_invalid_schedule(name):
        time = resolve_time(name, value, lambda: now)
    if time is None or time > now:
        raise InvalidSchedule(f"{name}={time} has not passed.", parameter=name)
    return time


@needs_tables
def delete_schedule(identifier: str, *, by: str = "") -> None:
    """Delete a schedule and the record of its slots, but not its Instances.

    Raises UnknownSchedule, or IllegalSchedule if code declares the schedule, because the next
    registration would create the schedule again.
    """
    check_actor(by)
    row = get_schedule(identifier)
    if row.declared is not None and row.retired is None:
        raise IllegalSchedule(
            f"{identifier!r} is declared in code. Pause the schedule, or remove it from the code."
        )
    get_store().schedules.delete(identifier, who=by)


@needs_tables
def retire_schedules(*, by: str = "") -> list[str]:
    """Retire the schedules that earlier code declared, and that this process does not declare.

    A retired schedule has no further slots. Return the identifiers of the schedules that were
    retired by this call.
    """
    check_actor(by)
    return get_store().schedules.retire({spec.identifier for spec in declared_schedules}, who=by)


@needs_tables
def schedules() -> list[Schedule]:
    """Return all schedules, sorted by identifier."""
    return list(Schedule.objects.using(settings.DATABASE).select_related("type"))


@needs_tables
def get_schedule(identifier: str) -> Schedule:
    """Return the schedule with this identifier. Raises UnknownSchedule.

    The message of UnknownSchedule suggests the most similar identifier.
    """
    rows = Schedule.objects.using(settings.DATABASE).select_related("type")
    row = rows.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if row is None:
        hint = text.did_you_mean(str(identifier), rows.values_list("identifier", flat=True))
        raise UnknownSchedule(f"There is no schedule {identifier!r}.{hint}")
    return row


@needs_tables
def slots(identifier: str, *, limit: int = 200) -> list[Slot]:
    """Return the latest ``limit`` Slots of a schedule, newest first."""
    rows = Slot.objects.using(settings.DATABASE).filter(schedule=get_schedule(identifier))
    return list(rows.order_by("-at")[:limit])


def _read_parameters(row: Schedule) -> dict[str, Any]:
    """Return the values of a schedule as keyword arguments for :func:`check_schedule`.

    A pickle is not opened, because anyone who can write to the table could then run code.
    """
    names = (
        *("every", "timezone", "missed", "most", "overlap", "priority", "collection"),
        *("start_before", "timeout", *LENGTHS),
    )
    hooks = read_hooks(row.hooks)
    stored = Payload(row.format, row.data)
    inputs = codec.decode(stored) if row.format == codec.JSON else stored
    return {name: getattr(row, name) for name in names} | {
        "cron": row.cron or None,
        "inputs": inputs,
        **{on: [hook for hook in hooks if hook.on == on] or None for on in HOOK_STATES},
    }


# The entries of these operations in the table of operations.


@dataclass(frozen=True, kw_only=True)
class ScheduleOperation(Operation):
    """An operation on a schedule, as an entry in the table of operations.

    ``is_allowed(schedule)`` returns True if the operation would change something.
    """

    is_allowed: Callable[[Schedule], bool] = always
    permission: str = CONTROL


def _read_form_values(schedule: Schedule) -> dict[str, Any]:
    """Return the values of a schedule as text, for the form that changes the schedule."""
    names = ("cron", "timezone", "missed", "most", "overlap", "priority", "collection")
    lengths = ("every", "window", "late_after", "jitter", "start_before", "timeout")
    values = {name: getattr(schedule, name) for name in names}
    values |= {name: text.delay_text(getattr(schedule, name)) for name in lengths}
    return values | {"inputs": Inputs.text_of(_read_masked_inputs(schedule))}


def _read_masked_inputs(schedule: Schedule) -> Any:
    if schedule.format != codec.JSON:
        return {}
    masked = mask_json(schedule.data, sensitive_names(schedule.type))
    return codec.decode(Payload(schedule.format, masked))


def _change_if_any(schedule: Schedule, *, by: str, **changes: Any) -> Schedule | None:
    if not changes:
        return None
    return change_schedule(schedule.identifier, by=by, **changes)


def _describe_change(_: Schedule, changed: Schedule | None) -> str:
    if changed is None:
        return "Nothing was changed."
    return f"The schedule is changed. Its next slot is {text.moment(changed.next_at)}."


def _describe_pause(_: Schedule, row: Schedule) -> str:
    if row.was_paused is None:
        return "The schedule is paused."
    by, reason = row.was_paused
    actor = f" by {by}" if by else ""
    why = f": {reason}" if reason else ""
    return f"The schedule is paused. It was already paused{actor}{why}."


def _is_paused(schedule: Schedule) -> bool:
    return schedule.is_paused(schedule.now or get_store().now())


# The parameters of create and change.
PARAMETERS = (
    Parameter(
        name="cron", kind=Text(), help='Five fields like "30 2 * * *", or a name like "@daily".'
    ),
    Parameter(
        name="every",
        kind=Delay(),
        help="The time between slots, instead of cron; slots are aligned to the Unix epoch.",
    ),
    Parameter(
        name="timezone",
        kind=Text(),
        help="Time zone of the cron expression, such as Europe/Vienna.",
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
        help="If the last Instance has not ended: run in parallel, skip the slot, wait for its "
        "end, or cancel it.",
    ),
    Parameter(
        name="jitter", kind=Delay(), help="The maximum delay of a slot; it spreads slots over time."
    ),
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

OPERATIONS: tuple[ScheduleOperation, ...] = (
    ScheduleOperation(
        name="run",
        label="Run now",
        phrase="Run {} now",
        explanation="Enqueue an Instance now, in addition to the slots. With overlap=queue it "
        "waits for the schedule's live Instances; with overlap=cancel it cancels them.",
        call=lambda schedule, by: run_schedule(schedule.identifier, by=by),
        told=lambda _, instance: f"{instance.uuid} is enqueued.",
        is_allowed=lambda schedule: schedule.retired is None,
        permission=OPERATE,
    ),
    ScheduleOperation(
        name="pause",
        label="Pause",
        explanation="Pause the schedule. Its slots do not run, and are recorded as PAUSED.",
        call=lambda schedule, **values: pause_schedule(schedule.identifier, **values),
        told=_describe_pause,
        parameters=(
            Parameter(name="reason", kind=Text(), help="Why, for the log and the pages."),
            Parameter(name="until", kind=Moment(), help="When the schedule resumes automatically."),
        ),
        is_allowed=lambda schedule: schedule.retired is None and not _is_paused(schedule),
    ),
    ScheduleOperation(
        name="resume",
        label="Resume",
        explanation="Resume the schedule with its first slot after now.",
        call=lambda schedule, by: resume_schedule(schedule.identifier, by=by),
        told=lambda _, row: (
            f"The schedule is resumed. Its next slot is {text.moment(row.next_at)}."
        ),
        is_allowed=lambda schedule: schedule.retired is None and _is_paused(schedule),
    ),
    ScheduleOperation(
        name="change",
        label="Change",
        explanation="Change parameters of the schedule; the other parameters stay the same. Later "
        "deploys keep the change.",
        call=_change_if_any,
        told=_describe_change,
        parameters=(*PARAMETERS, REVISION),
        current=_read_form_values,
        # The actor chooses inputs of future Instances.
        permission_too=ENQUEUE,
        method="PATCH",
    ),
    ScheduleOperation(
        name="backfill",
        label="Backfill",
        explanation="Enqueue Instances for the slots in the past that were not run.",
        call=lambda schedule, **values: backfill_schedule(schedule.identifier, **values),
        told=lambda _, planned: f"Instances enqueued: {text.number(planned.enqueued)}.",
        parameters=(
            Parameter(name="start", kind=Past(), help="Slots from this time on.", is_required=True),
            Parameter(name="end", kind=Past(), help="Slots up to this time; empty means now."),
        ),
        permission=OPERATE,
    ),
    ScheduleOperation(
        name="leave",
        label="Leave to the code",
        phrase="Leave {} to the code",
        explanation="Use the schedule that the code declares, instead of what an operator has set.",
        call=lambda schedule, by: leave_schedule(schedule.identifier, by=by),
        told=lambda *_: "The schedule is as the code declares it.",
        is_allowed=lambda schedule: schedule.is_set and schedule.declared is not None,
    ),
    ScheduleOperation(
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
