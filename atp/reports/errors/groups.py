"""The error groups of a page, with their dead letters, releases and error lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, IntegerField, OuterRef, QuerySet, Subquery

from ...conf import settings
from ...models import Daemon, ErrorGroup, Failure, Instance
from ...rows.querysets import Counted
from ...verbs.matching.selection import matches
from ..documents import Document
from ..failures import headlines

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


def document(group: Group) -> Document:
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
