"""The verbs on schedules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...models import Schedule
from ...payload import codec
from ...payload.codec import Payload
from ...payload.sensitive import masked_json
from ...rows.schedule import Missed, Overlap
from ...store import get_store
from ...store.values import Planned
from ...words import wording
from ...words.kinds import PRIORITY, TIMEOUT, Choice, Delay, Moment, Text, WholeNumber
from .. import schedules
from ..schedule_specs import MOST_MISSED
from ..types import sensitive_names
from .inputs import Inputs
from .past_moment import Past
from .verb import CONTROL, ENQUEUE, OPERATE, Parameter, Verb, always


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
    found |= {name: wording.written(getattr(schedule, name)) for name in lengths}
    return found | {"inputs": Inputs.text_of(_inputs(schedule))}


def _inputs(schedule: Schedule) -> Any:
    if schedule.format != codec.JSON:
        return {}
    shown = masked_json(schedule.data, sensitive_names(schedule.type))
    return codec.decode(Payload(schedule.format, shown))


def _change(schedule: Schedule, *, by: str, **changes: Any) -> Schedule | None:
    if not changes:
        return None
    return schedules.change_schedule(schedule.identifier, by=by, **changes)


def _changed(_: Schedule, changed: Schedule | None) -> str:
    if changed is None:
        return "Nothing was changed."
    return f"It is changed. The next slot is {wording.moment(changed.next_at)}."


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
        call=lambda schedule, by: schedules.run_schedule(schedule.identifier, by=by),
        told=lambda _, instance: f"{instance.uuid} is enqueued.",
        is_allowed=lambda schedule: schedule.retired is None,
        permission=OPERATE,
    ),
    ScheduleVerb(
        name="pause",
        label="Pause",
        explanation="Pause the schedule: its slots pass, and are recorded as PAUSED.",
        call=lambda schedule, **given: schedules.pause_schedule(schedule.identifier, **given),
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
        call=lambda schedule, by: schedules.resume_schedule(schedule.identifier, by=by),
        told=lambda _, row: f"It goes on. The next slot is {wording.moment(row.next_at)}.",
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
        call=lambda schedule, **given: schedules.backfill_schedule(schedule.identifier, **given),
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
        call=lambda schedule, by: schedules.leave_schedule(schedule.identifier, by=by),
        told=lambda *_: "The schedule is as the code declares it.",
        is_allowed=lambda schedule: schedule.is_set and schedule.declared is not None,
    ),
    ScheduleVerb(
        name="delete",
        label="Delete",
        explanation="Remove the schedule and the record of its slots for good. Its Instances stay.",
        call=lambda schedule, by: schedules.delete_schedule(schedule.identifier, by=by),
        told=lambda schedule, _: f"{schedule.identifier} is removed.",
        is_final=True,
        is_allowed=lambda schedule: schedule.declared is None or schedule.retired is not None,
        method="DELETE",
    ),
)
