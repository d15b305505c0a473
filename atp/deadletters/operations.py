"""The operations on error groups, and on all Instances that match a filter.

Other functions here return error groups as documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Exists, IntegerField, OuterRef, QuerySet, Subquery

from ..conf import settings
from ..exceptions import InvalidOption
from ..models import Daemon, ErrorGroup, Failure, Instance, Type
from ..operations import matching
from ..operations.base import check_actor, needs_tables
from ..operations.matching import (
    MOST_CANARIES,
    Plan,
    cancel_matching,
    delete_matching,
    error_group,
    matches,
    redrive_matching,
)
from ..operations.operation import (
    DELETE,
    Choice,
    Flag,
    Lines,
    Moment,
    Number,
    Operation,
    Parameter,
    Past,
    Rate,
    Text,
    WholeNumber,
    always,
)
from ..options import check_lines, resolve_time
from ..querysets import InstanceQuerySet, RowCount
from ..reports.documents import Document, headlines
from ..states import DEAD_LETTER, Reason, State
from ..store import get_store

# The maximum number of dead letters to count, and of the newest whose collections to count.
MOST, NEWEST = 1_000, 200
# In characters.
MAX_NOTE = 10_000
# A FAILED Instance with one of these reasons has no error group, because the cause was neither an
# error nor a lost attempt.
WITHOUT_GROUP = tuple(reason for reason in Reason if reason not in DEAD_LETTER)


# Documents: error groups with their dead letters, releases and error lines; plans.


class _Collections(Subquery):
    template = "(SELECT count(DISTINCT nullif(counted.collection, '')) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


@dataclass(frozen=True, kw_only=True)
class Group:
    """An error group, with numbers and texts from other tables.

    ``failures`` counts all failures so far, including those that no daemon has added to the row
    yet. ``left`` counts the dead letters that the group still has, up to MOST; ``is_more`` is True
    if it has more. ``collections`` is the number of collections among its newest dead letters,
    without Instances that have no collection. ``title`` is the error line of the first failure.
    ``line`` is the error line of the newest failure; it is empty if that Instance was removed, or
    has failed in another group since. ``release`` is the release of the last daemon that started
    before the first failure; it is empty if no such daemon has a row any more.
    """

    row: ErrorGroup
    failures: int
    left: int
    is_more: bool
    collections: int
    title: str
    line: str
    release: str

    @property
    def has_older(self) -> bool:
        """True if the group has older dead letters, whose collections are not counted."""
        return self.left > NEWEST


def load_groups(rows: Iterable[ErrorGroup], *, lines: bool = True) -> list[Group]:
    """Return a Group for each row of an error group.

    An error line may quote inputs. If ``lines`` is False, ``title`` is only the class of the
    exception, and ``line`` is empty.
    """
    found = list(rows)
    instances = Instance.objects.using(settings.DATABASE)
    dead_letters = instances.filter(error=OuterRef("pk")).order_by("-pk")
    # Daemons add failures to their groups all the time, so only few rows match.
    added_later = Failure.objects.using(settings.DATABASE).filter(group=OuterRef("pk")).order_by()
    counted = (
        ErrorGroup.objects.using(settings.DATABASE)
        .filter(pk__in=[row.pk for row in found])
        .annotate(left=RowCount(dead_letters.values("pk")[: MOST + 1]))
        .annotate(collections=_Collections(dead_letters.values("collection")[:NEWEST]))
        .annotate(later=RowCount(added_later.values("pk")))
        .values_list("pk", "left", "collections", "count", "later")
    )
    counts = {pk: rest for pk, *rest in counted}
    none = (0, 0, 0, 0)
    newest_lines = _newest_lines(found) if lines else {}
    releases = _releases()
    return [
        Group(
            row=row,
            # One statement has read both numbers, so no failure counts twice.
            failures=sum(counts.get(row.pk, none)[2:]),
            left=min(counts.get(row.pk, none)[0], MOST),
            is_more=counts.get(row.pk, none)[0] > MOST,
            collections=counts.get(row.pk, none)[1],
            title=row.title if lines else row.exception.rpartition(".")[2],
            line=newest_lines.get(row.pk, ""),
            release=next((name for since, name in releases if since <= row.first_seen), ""),
        )
        for row in found
    ]


def _newest_lines(rows: list[ErrorGroup]) -> dict[int, str]:
    """Return the error line of the newest failure of each group, by the key of the group."""
    last = {row.pk: row.last_instance for row in rows}
    newest = Instance.objects.using(settings.DATABASE).filter(uuid__in=last.values())
    # An Instance that was redriven may be in another group now.
    same = [each for each in newest if each.error_id and last.get(each.error_id) == each.uuid]
    lines = headlines(same)
    return {each.error_id: lines[each.pk] for each in same if each.error_id and each.pk in lines}


def _releases() -> list[tuple[datetime, str]]:
    """Return the start and the release of each daemon, the newest first."""
    rows = Daemon.objects.using(settings.DATABASE).order_by("-started")
    return [(row.started, row.release) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Ungrouped:
    """The number of FAILED Instances with a reason that gives them no error group.

    For each Type, ``count`` counts up to MOST Instances; ``is_more`` is True if a Type has more.
    """

    reason: Reason
    count: int
    is_more: bool


def count_ungrouped(instances: InstanceQuerySet[Instance], pattern: str = "") -> list[Ungrouped]:
    """Count those of these Instances that are FAILED without an error group, in one query.

    With a ``pattern``, only the Instances of Types that match it count. Reasons without any such
    Instance are left out.
    """
    of_type = instances.filter(type=OuterRef("pk")).order_by()
    failed = {
        f"failed_{reason.lower()}": RowCount(
            of_type.selected(state=State.FAILED, reason=reason).values("pk")[: MOST + 1]
        )
        for reason in WITHOUT_GROUP
    }
    types = Type.objects.using(settings.DATABASE).order_by()
    counted = types.annotate(**failed).values_list("identifier", *failed)
    rows = [row for name, *row in counted if not pattern or matches(pattern, name)]
    found = []
    for number, reason in enumerate(WITHOUT_GROUP):
        counts = [row[number] for row in rows]
        if any(counts):
            count = sum(min(each, MOST) for each in counts)
            found.append(Ungrouped(reason=reason, count=count, is_more=max(counts) > MOST))
    return found


def filter_groups(
    rows: QuerySet[ErrorGroup], type: str = "", muted: str = "", left: str = ""
) -> QuerySet[ErrorGroup]:
    """Return the error groups that match all given filters; "" sets no filter.

    ``type`` is a pattern of Types. ``muted`` selects groups that are muted ("true") or not
    ("false"). ``left`` selects groups with dead letters ("true") or without any ("false").
    """
    if type:
        known = rows.order_by().values_list("type", flat=True).distinct()
        rows = rows.filter(type__in=[name for name in known if matches(type, name)])
    if muted:
        rows = rows.exclude(muted_by="") if muted == "true" else rows.filter(muted_by="")
    if left:
        dead_letter = Exists(Instance.objects.using(settings.DATABASE).filter(error=OuterRef("pk")))
        rows = rows.filter(dead_letter if left == "true" else ~dead_letter)
    return rows


def group_document(group: Group) -> Document:
    """Return an error group as a dictionary of plain values."""
    row = group.row
    return {
        "name": row.name,
        "key": row.digits,
        "type": row.type,
        "fingerprint": bytes(row.fingerprint).hex(),
        "version": row.version,
        "exception": row.exception,
        "title": group.title,
        "line": group.line,
        "count": group.failures,
        "left": group.left,
        "is_more": group.is_more,
        "collections": group.collections,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
        "first_instance": row.first_instance,
        "last_instance": row.last_instance,
        "release": group.release,
        "muted_by": row.muted_by,
        "muted_until": row.muted_until,
        "note": row.note,
    }


def plan_document(plan: Plan) -> Document:
    """Return a plan as a dictionary of plain values."""
    return {
        "count": plan.count,
        "by_error": dict(plan.by_error),
        "by_type": dict(plan.by_type),
        "by_collection": dict(plan.by_collection),
        "cannot": dict(plan.cannot),
        "judged": plan.judged,
        "takes": None if plan.takes is None else plan.takes.total_seconds(),
        "told": matching.describe_plan(plan),
    }


# Operations on error groups.


def error_groups() -> QuerySet[ErrorGroup]:
    """Return the error groups, the one with the latest failure first.

    A new failure appears in its group about a second after it was recorded, when a daemon adds it.
    """
    return ErrorGroup.objects.using(settings.DATABASE).order_by("-last_seen", "-id")


@needs_tables
def get_error_group(named: ErrorGroup | str) -> ErrorGroup:
    """Return the error group whose name is, or begins with, these digits (four or more).

    Raises UnknownErrorGroup.
    """
    return error_group(named)


@needs_tables
def mute(
    group: ErrorGroup | str, *, until: datetime | timedelta | None = None, by: str = ""
) -> ErrorGroup:
    """Mute an error group, so that it raises no alerts; return the group.

    The first failure after ``until``, a time or a delay from now, unmutes the group. Without
    ``until`` the group stays muted until an operator unmutes it. Raises UnknownErrorGroup,
    InvalidOption.
    """
    check_actor(by)
    until = resolve_time("until", until, get_store().now)
    if until is not None and until <= get_store().now():
        raise InvalidOption(f"until={until.isoformat(' ', 'seconds')} has passed already.")
    found = error_group(group)
    get_store().errors.mute(found, by=by or "somebody", until=until)
    return error_group(found)


@needs_tables
def unmute(group: ErrorGroup | str, *, by: str = "") -> ErrorGroup:
    """Unmute an error group; return the group. Raises UnknownErrorGroup."""
    check_actor(by)
    found = error_group(group)
    get_store().errors.mute(found, by="")
    return error_group(found)


@needs_tables
def annotate(group: ErrorGroup | str, note: str, *, by: str = "") -> ErrorGroup:
    """Set the note of an error group, up to 10,000 characters; return the group.

    Raises UnknownErrorGroup, InvalidOption.
    """
    check_actor(by)
    check_lines("note", note, MAX_NOTE)
    found = error_group(group)
    get_store().errors.annotate(found, note)
    return error_group(found)


# Entries in the table of operations: on all Instances that match, and on error groups.


@dataclass(frozen=True, kw_only=True)
class MatchingOperation(Operation):
    """An operation on all Instances that match a filter, which the parameters define."""


@dataclass(frozen=True, kw_only=True)
class ErrorOperation(Operation):
    """An operation on an error group. ``is_allowed(group)`` is True if it would change anything."""

    is_allowed: Callable[[ErrorGroup], bool] = always


_RATE = Parameter(
    name="rate", kind=Rate(), help="Instances per period; without a rate, as fast as possible."
)
_COLLECTION = Parameter(name="collection", kind=Text(), help="Only those of this collection.")
_BEFORE = Parameter(
    name="ended_before", kind=Past(), help="Only those that ended by this time; empty means now."
)
_AFTER = Parameter(name="ended_after", kind=Past(), help="Only those that ended at or after this.")
_CREATION = (
    Parameter(name="created_after", kind=Past(), help="Only those enqueued at or after this time."),
    Parameter(
        name="created_before",
        kind=Past(),
        help="Only those enqueued by this time; empty means now.",
    ),
    Parameter(
        name="created_by", kind=Text(), help="Only those that this user enqueued, as the log says."
    ),
    Parameter(
        name="tried_again",
        kind=Flag(),
        help="Only those with an attempt that raised or was lost.",
    ),
)
_DRY_RUN = Parameter(
    name="dry_run", kind=Flag(), help="Only report what would be done.", in_forms=False
)
_CANARY = (
    Parameter(
        name="canary",
        kind=WholeNumber(0, MOST_CANARIES),
        help="Redrive this many first, and the others only if enough of these finish.",
    ),
    Parameter(
        name="threshold",
        kind=Number(0.01, 1),
        help="The fraction of the canary that has to be FINISHED; 0.95 by default.",
    ),
)
_FILTER = (
    Parameter(
        name="type", kind=Text(), help='Only those of this Type, or of a pattern as "dem.*".'
    ),
    Parameter(name="error", kind=Text(), help="Only those of this error group."),
    _BEFORE,
    _AFTER,
    *_CREATION,
    _COLLECTION,
    Parameter(
        name="reason",
        kind=Choice(tuple(Reason.values)),
        help="Only those that FAILED for this reason.",
    ),
    Parameter(name="all", kind=Flag(), help="Select all; needed if no filter is given."),
)
_LIVE_FILTER = (
    _FILTER[0],
    _COLLECTION,
    *_CREATION,
    Parameter(
        name="state",
        kind=Choice(tuple(State.values)),
        help="Only those in this state, a live one.",
    ),
    _FILTER[-1],
)


def _call_without_target(call: Callable[..., Any], _: object, **parameters: Any) -> Any:
    return call(**parameters)


def _call_with_error(call: Callable[..., Any], group: ErrorGroup, **parameters: Any) -> Any:
    return call(error=group, **parameters)


def _annotate(group: ErrorGroup, by: str, note: str | None = None) -> ErrorGroup | None:
    """Set the note of a group; without a note, change nothing."""
    return None if note is None else annotate(group, note, by=by)


def _describe_note(_: ErrorGroup, group: ErrorGroup | None) -> str:
    return "Nothing was changed." if group is None else f"The note of {group.name} is set."


def _describe_matching(_: object, outcome: Any) -> str:
    return matching.describe_outcome(outcome)


def _describe_muting(_: ErrorGroup, group: ErrorGroup) -> str:
    return f"{group.name} is muted{' until it is unmuted' if group.muted_until is None else ''}."


MATCHING_OPERATIONS = (
    MatchingOperation(
        name="redrive",
        label="Redrive all that match",
        explanation="Send all dead letters that match back to the queue, after a canary and at "
        "a rate.",
        call=partial(_call_without_target, redrive_matching),
        told=_describe_matching,
        parameters=(*_FILTER, _RATE, *_CANARY, _DRY_RUN),
    ),
    MatchingOperation(
        name="cancel",
        label="Cancel all that match",
        explanation="End all live Instances that match, at a rate.",
        call=partial(_call_without_target, cancel_matching),
        told=_describe_matching,
        parameters=(*_LIVE_FILTER, _RATE, _DRY_RUN),
    ),
    MatchingOperation(
        name="delete",
        label="Delete all that match",
        explanation="Remove all dead letters that match for good, at a rate.",
        call=partial(_call_without_target, delete_matching),
        told=_describe_matching,
        parameters=(*_FILTER, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)

ERROR_OPERATIONS = (
    ErrorOperation(
        name="redrive",
        label="Redrive",
        explanation="Send its dead letters back to the queue, after a canary and at a rate.",
        call=partial(_call_with_error, redrive_matching),
        told=_describe_matching,
        parameters=(_BEFORE, _COLLECTION, _RATE, *_CANARY, _DRY_RUN),
    ),
    ErrorOperation(
        name="mute",
        label="Mute",
        explanation="Stop alerts about the error group, until somebody unmutes it or until the "
        "first failure after a time.",
        call=mute,
        told=_describe_muting,
        parameters=(
            Parameter(
                name="until",
                kind=Moment(),
                help="Mute only until the first failure after this time.",
            ),
        ),
    ),
    ErrorOperation(
        name="unmute",
        label="Unmute",
        explanation="Allow alerts about the error group again.",
        call=lambda group, by: unmute(group, by=by),
        told=lambda _, group: f"{group.name} is not muted.",
        is_allowed=lambda group: group.is_muted,
    ),
    ErrorOperation(
        name="annotate",
        label="Note",
        phrase="Set the note of {}",
        explanation="Set the note of the error group.",
        call=_annotate,
        told=_describe_note,
        parameters=(
            Parameter(name="note", kind=Lines(MAX_NOTE), help="What is known of the error."),
        ),
        current=lambda group: {"note": group.note},
    ),
    ErrorOperation(
        name="delete",
        label="Delete",
        explanation="Remove its dead letters for good, at a rate.",
        call=partial(_call_with_error, delete_matching),
        told=_describe_matching,
        parameters=(_BEFORE, _COLLECTION, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)
