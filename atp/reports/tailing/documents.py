"""The documents of tailers and their cursors, and the log of a tailer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from ...conf import settings
from ...models import Cursor, Instance, LogRecord, Schedule, Tailer
from ...rows.log import Kind
from ...states import State
from .. import overview

FIELDS = (
    *("identifier", "source", "read_at", "records", "enqueued", "rejected", "behind", "gaps"),
    *("lost", "lost_at", "passed_over", "skipped", "error"),
)
OF_CURSOR = ("shard", "position", "moved", "missing_since")
# The number of cursors that are shown, those that moved last.
SHOWN = 100
# The number of log records that are shown, the newest.
LOG = 50
# The kinds of log records that are about the tailer of a Type.
KINDS = (Kind.CURSOR, Kind.GAP, Kind.SOURCE)
READING, PAUSED, FAILING = "reading", "paused", "failing"


def of_type(identifier: str) -> str | None:
    """Return the identifier of the tailer to which a Type belongs; None if it belongs to none."""
    name = identifier.removesuffix(".rejected")
    found = Tailer.objects.using(settings.DATABASE).filter(identifier=name)
    return name if found.exists() else None


def documents(rows: Iterable[Tailer]) -> list[dict[str, Any]]:
    """Return tailers as plain values, in few queries for all of them.

    ``state`` is "paused" if the schedule is paused, "failing" if the last attempt has failed or is
    tried again, and "reading" otherwise; ``why`` says why a tailer is paused or has stopped.
    """
    rows = list(rows)
    names = [row.identifier for row in rows]
    pauses, failing = _pauses(names), set(_failing(names))
    return [_document(row, pauses.get(row.identifier), row.identifier in failing) for row in rows]


def document(row: Tailer) -> dict[str, Any]:
    """Return a tailer as plain values: see :func:`documents`."""
    return documents([row])[0]


def cursor(row: Cursor) -> dict[str, Any]:
    """Return a cursor as plain values."""
    return {name: getattr(row, name) for name in OF_CURSOR}


def log(row: Tailer) -> QuerySet[LogRecord]:
    """Return what a tailer lost and cannot read, and who set its cursors; the newest first."""
    records = LogRecord.objects.using(settings.DATABASE).about(f"type:{row.identifier}")
    return records.filter(kind__in=KINDS).reverse()[:LOG]


def _document(row: Tailer, pause: str | None, is_failing: bool) -> dict[str, Any]:
    state = FAILING if is_failing or row.error else READING
    return {name: getattr(row, name) for name in FIELDS} | {
        "notes": row.notes.splitlines(),
        "state": state if pause is None else PAUSED,
        "why": row.error or pause or "",
    }


def _pauses(names: list[str]) -> dict[str, str]:
    """Return the reasons, by identifier, of those whose schedules are paused."""
    now = overview.now()
    rows = Schedule.objects.using(settings.DATABASE).filter(identifier__in=names)
    return {row.identifier: row.paused_reason for row in rows if row.is_paused(now)}


def _failing(names: list[str]) -> Iterator[str]:
    """Yield the identifiers of those whose attempts have failed since a source was read last."""
    rows = Instance.objects.using(settings.DATABASE).filter(type__identifier__in=names)
    yield from rows.live().filter(retries__gt=0).values_list("type__identifier", flat=True)
    read = Tailer.objects.using(settings.DATABASE).filter(identifier=OuterRef("type__identifier"))
    failed = rows.filter(state=State.FAILED, finished__gte=Subquery(read.values("read_at")))
    yield from failed.values_list("type__identifier", flat=True)
