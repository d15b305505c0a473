"""Error groups: list, mute, annotate; their entries in the table, and those on all that matches;
documents.
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
from ..models import Daemon, ErrorGroup, Failure, Instance
from ..operations import matching
from ..operations.base import check_by, needs_tables
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
    Parameter,
    Past,
    Rate,
    Text,
    Verb,
    WholeNumber,
    always,
)
from ..options import check_lines, instant
from ..querysets import Counted
from ..reports.documents import Document, headlines
from ..states import Reason
from ..store import get_store

# The error groups of a page, with their dead letters, releases and error lines.

# The maximum number of dead letters that are counted, and of the newest whose collections are.
MOST, NEWEST = 1_000, 200


class _Collections(Subquery):
    template = "(SELECT count(DISTINCT nullif(counted.collection, '')) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


@dataclass(frozen=True, kw_only=True)
class Group:
    """An error group; ``left`` counts its dead letters, without those redriven or removed.

    ``failures`` counts all failures so far, those included that no daemon has added to the row
    yet. ``is_more`` says that more are left than were counted. ``collections`` is the number of
    collections among the newest of them; Instances without a collection do not count. ``title`` is
    the error line of the first failure, and ``line`` that of the newest, empty if that is gone or
    has failed in another group since. ``release`` was running when the group was first seen, as far
    as the rows of daemons show it.
    """

    row: ErrorGroup
    failures: int
    left: int
    is_more: bool
    collections: int
    title: str
    line: str
    release: str


def groups(rows: Iterable[ErrorGroup], *, lines: bool = True) -> list[Group]:
    """Return a Group for each of these error groups.

    An error line may quote inputs. Without ``lines`` the title is the class of the exception, and
    the other line is empty.
    """
    found = list(rows)
    own = Instance.objects.using(settings.DATABASE).filter(error=OuterRef("pk")).order_by("-pk")
    # Daemons add failures to their groups all the time, so few are left to be added.
    added_later = Failure.objects.using(settings.DATABASE).filter(group=OuterRef("pk")).order_by()
    counted = (
        ErrorGroup.objects.using(settings.DATABASE)
        .filter(pk__in=[row.pk for row in found])
        .annotate(left=Counted(own.values("pk")[: MOST + 1]))
        .annotate(collections=_Collections(own.values("collection")[:NEWEST]))
        .annotate(later=Counted(added_later.values("pk")))
        .values_list("pk", "left", "collections", "count", "later")
    )
    counts = {pk: rest for pk, *rest in counted}
    none = (0, 0, 0, 0)
    told = _lines(found) if lines else {}
    releases = _releases()
    return [
        Group(
            row=row,
            # One statement has read both, so what is added meanwhile counts once.
            failures=sum(counts.get(row.pk, none)[2:]),
            left=min(counts.get(row.pk, none)[0], MOST),
            is_more=counts.get(row.pk, none)[0] > MOST,
            collections=counts.get(row.pk, none)[1],
            title=row.title if lines else row.exception.rpartition(".")[2],
            line=told.get(row.pk, ""),
            release=next((name for since, name in releases if since <= row.first_seen), ""),
        )
        for row in found
    ]


def _lines(rows: list[ErrorGroup]) -> dict[int, str]:
    """Return the error line of the newest failure of each group, by the key of the group."""
    last = {row.pk: row.last_instance for row in rows}
    newest = Instance.objects.using(settings.DATABASE).filter(uuid__in=last.values())
    # One that has been redriven may have failed for another cause since.
    own = [each for each in newest if each.error_id and last.get(each.error_id) == each.uuid]
    told = headlines(own)
    return {each.error_id: told[each.pk] for each in own if each.error_id and each.pk in told}


def _releases() -> list[tuple[datetime, str]]:
    """Return the start and the release of each daemon, the newest first."""
    rows = Daemon.objects.using(settings.DATABASE).order_by("-started")
    return [(row.started, row.release) for row in rows]


def selected(
    rows: QuerySet[ErrorGroup], type: str = "", muted: str = "", left: str = ""
) -> QuerySet[ErrorGroup]:
    """Filter error groups.

    ``type`` is a pattern. ``muted`` selects those that are muted ("true") or not ("false"), and
    ``left`` those that still have dead letters ("true") or have none ("false").
    """
    if type:
        known = rows.order_by().values_list("type", flat=True).distinct()
        rows = rows.filter(type__in=[name for name in known if matches(type, name)])
    if muted:
        rows = rows.exclude(muted_by="") if muted == "true" else rows.filter(muted_by="")
    if left:
        own = Exists(Instance.objects.using(settings.DATABASE).filter(error=OuterRef("pk")))
        rows = rows.filter(own if left == "true" else ~own)
    return rows


def group_document(group: Group) -> Document:
    """Return an error group as plain values by name."""
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


# Plans as plain values.


def plan_document(plan: Plan) -> Document:
    """Return a plan as plain values by name."""
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


# The verbs on error groups.

MAX_NOTE = 10_000


def error_groups() -> QuerySet[ErrorGroup]:
    """Return the error groups, the one with the latest failure first.

    A failure is counted in its group about a second after it was recorded.
    """
    return ErrorGroup.objects.using(settings.DATABASE).order_by("-last_seen", "-id")


@needs_tables
def get_error_group(named: ErrorGroup | str) -> ErrorGroup:
    """Return the error group with this name, or whose name begins with these digits (four or more).

    Raises UnknownErrorGroup.
    """
    return error_group(named)


@needs_tables
def mute(
    group: ErrorGroup | str, *, until: datetime | timedelta | None = None, by: str = ""
) -> ErrorGroup:
    """Mute an error group, so that it raises no alerts; return it.

    The next failure after ``until``, a time or a delay from now, unmutes it; without ``until`` it
    stays muted until somebody unmutes it. Raises UnknownErrorGroup, InvalidOption.
    """
    check_by(by)
    until = instant("until", until, get_store().now)
    if until is not None and until <= get_store().now():
        raise InvalidOption(f"until={until.isoformat(' ', 'seconds')} has passed already.")
    found = error_group(group)
    get_store().errors.mute(found, by=by or "somebody", until=until)
    return error_group(found)


@needs_tables
def unmute(group: ErrorGroup | str, *, by: str = "") -> ErrorGroup:
    """Unmute an error group; return it. Raises UnknownErrorGroup."""
    check_by(by)
    found = error_group(group)
    get_store().errors.mute(found, by="")
    return error_group(found)


@needs_tables
def annotate(group: ErrorGroup | str, note: str, *, by: str = "") -> ErrorGroup:
    """Set the note of an error group, up to 10,000 characters; return the group.

    Raises UnknownErrorGroup, InvalidOption.
    """
    check_by(by)
    check_lines("note", note, MAX_NOTE)
    found = error_group(group)
    get_store().errors.annotate(found, note)
    return error_group(found)


# The verbs on all Instances that match, and those on error groups.


@dataclass(frozen=True, kw_only=True)
class MatchingVerb(Verb):
    """A verb on all Instances that match. It has no subject; the filter is among its parameters."""


@dataclass(frozen=True, kw_only=True)
class ErrorVerb(Verb):
    """A verb on an error group. ``is_allowed(group)`` tells whether it would change anything."""

    is_allowed: Callable[[ErrorGroup], bool] = always


_RATE = Parameter(
    name="rate", kind=Rate(), help="Instances per period; without a rate, as fast as possible."
)
_COLLECTION = Parameter(name="collection", kind=Text(), help="Only those of this collection.")
_BEFORE = Parameter(
    name="ended_before", kind=Past(), help="Only those that ended by this time; empty means now."
)
_DRY_RUN = Parameter(
    name="dry_run", kind=Flag(), help="Only tell what would be done.", in_forms=False
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
    _COLLECTION,
    Parameter(
        name="reason",
        kind=Choice(tuple(Reason.values)),
        help="Only those that FAILED for this reason.",
    ),
    Parameter(name="all", kind=Flag(), help="Select all; needed if no filter is given."),
)
_OF_LIVE = (
    _FILTER[0],
    _COLLECTION,
    Parameter(
        name="created_before",
        kind=Past(),
        help="Only those enqueued by this time; empty means now.",
    ),
    _FILTER[-1],
)


def _matching(call: Callable[..., Any], _: object, **given: Any) -> Any:
    return call(**given)


def _of_error(call: Callable[..., Any], group: ErrorGroup, **given: Any) -> Any:
    return call(error=group, **given)


def _annotate(group: ErrorGroup, by: str, note: str | None = None) -> ErrorGroup | None:
    """Set the note of a group; without a note, change nothing."""
    return None if note is None else annotate(group, note, by=by)


def _noted(_: ErrorGroup, group: ErrorGroup | None) -> str:
    return "Nothing was changed." if group is None else f"The note of {group.name} is set."


def _told(_: object, outcome: Any) -> str:
    return matching.describe(outcome)


def _muted(_: ErrorGroup, group: ErrorGroup) -> str:
    return f"{group.name} is muted{' until it is unmuted' if group.muted_until is None else ''}."


ALL_MATCHING = (
    MatchingVerb(
        name="redrive",
        label="Redrive all that match",
        explanation="Send all dead letters that match back to the queue, after a canary and at "
        "a rate.",
        call=partial(_matching, redrive_matching),
        told=_told,
        parameters=(*_FILTER, _RATE, *_CANARY, _DRY_RUN),
    ),
    MatchingVerb(
        name="cancel",
        label="Cancel all that match",
        explanation="End all live Instances that match, at a rate.",
        call=partial(_matching, cancel_matching),
        told=_told,
        parameters=(*_OF_LIVE, _RATE, _DRY_RUN),
    ),
    MatchingVerb(
        name="delete",
        label="Delete all that match",
        explanation="Remove all dead letters that match for good, at a rate.",
        call=partial(_matching, delete_matching),
        told=_told,
        parameters=(*_FILTER, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)

OF_ERROR = (
    ErrorVerb(
        name="redrive",
        label="Redrive",
        explanation="Send its dead letters back to the queue, after a canary and at a rate.",
        call=partial(_of_error, redrive_matching),
        told=_told,
        parameters=(_BEFORE, _COLLECTION, _RATE, *_CANARY, _DRY_RUN),
    ),
    ErrorVerb(
        name="mute",
        label="Mute",
        explanation="Stop alerts about the error group, until somebody unmutes it or until the "
        "first failure after a time.",
        call=mute,
        told=_muted,
        parameters=(
            Parameter(
                name="until",
                kind=Moment(),
                help="Mute only until the first failure after this time.",
            ),
        ),
    ),
    ErrorVerb(
        name="unmute",
        label="Unmute",
        explanation="Allow alerts about the error group again.",
        call=lambda group, by: unmute(group, by=by),
        told=lambda _, group: f"{group.name} is not muted.",
        is_allowed=lambda group: group.is_muted,
    ),
    ErrorVerb(
        name="annotate",
        label="Note",
        phrase="Set the note of {}",
        explanation="Set the note of the error group.",
        call=_annotate,
        told=_noted,
        parameters=(
            Parameter(name="note", kind=Lines(MAX_NOTE), help="What is known of the error."),
        ),
        current=lambda group: {"note": group.note},
    ),
    ErrorVerb(
        name="delete",
        label="Delete",
        explanation="Remove its dead letters for good, at a rate.",
        call=partial(_of_error, delete_matching),
        told=_told,
        parameters=(_BEFORE, _COLLECTION, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)
