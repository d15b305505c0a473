"""List tailers, set a cursor, forget it; their entries in the table; documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from ..conf import settings
from ..exceptions import InvalidOption, UnknownType
from ..models import Cursor, Instance, Kind, LogRecord, Schedule, Tailer
from ..operations.base import check_by, needs_tables
from ..operations.operation import CONTROL, Parameter, Verb
from ..operations.operation import Kind as operation_Kind
from ..options import check_lines
from ..reports import overview
from ..sources import base as sources
from ..states import State
from ..store import get_store
from ..text import did_you_mean
from .models import MAX_SHARD

# The documents of tailers and their cursors, and the log of a tailer.

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


# The verbs of tailers: looking at sources and their cursors, and setting a cursor.

# The longest position that can be set by hand, in characters.
MAX_POSITION = 1000


@needs_tables
def tailers() -> list[Tailer]:
    """Return the tailers that have read their source at least once, sorted by identifier."""
    return list(Tailer.objects.using(settings.DATABASE))


@needs_tables
def get_tailer(identifier: str) -> Tailer:
    """Return the tailer with this identifier. Raises UnknownType if none has read."""
    rows = Tailer.objects.using(settings.DATABASE)
    found = rows.filter(identifier=identifier).first() if str(identifier).isprintable() else None
    if found is None:
        hint = did_you_mean(identifier, rows.values_list("identifier", flat=True))
        raise UnknownType(f"No tailer {identifier!r} has read its source.{hint}")
    return found


@needs_tables
def cursors(identifier: str, *, limit: int = 1000) -> list[Cursor]:
    """Return the cursors of a tailer, those that moved last first. Raises UnknownType."""
    row = get_tailer(identifier)
    rows = Cursor.objects.using(settings.DATABASE).filter(tailer=row.identifier)
    return list(rows.order_by("-moved", "pk")[:limit])


@needs_tables
def seek(identifier: str, *, shard: str, position: str, by: str = "") -> Tailer:
    """Have a tailer go on from another position of a shard; return its row.

    The position is the source's: of Kafka the offset that is next, of Redis the id of the entry
    that was read last. An attempt that reads now does not settle what it has read. Raises
    UnknownType, or InvalidOption if there is no such cursor, or if the source that this process
    declares has no such position.
    """
    check_lines("position", position, MAX_POSITION)
    if not position:
        raise InvalidOption("position must not be empty: forget_cursor() forgets it.")
    source = sources.declared.get(identifier)
    if source is not None:
        try:
            source.check_position(position)
        except ValueError as error:
            raise InvalidOption(f"position: {error}") from None
    return _set(identifier, shard, position, by)


@needs_tables
def forget_cursor(identifier: str, *, shard: str, by: str = "") -> Tailer:
    """Forget how far a shard has been read; return the row of the tailer.

    The source decides where it begins again: a Directory reads the file once more. Raises
    UnknownType or InvalidOption.
    """
    return _set(identifier, shard, None, by)


def _set(identifier: str, shard: str, position: str | None, by: str) -> Tailer:
    check_by(by)
    check_lines("shard", shard, MAX_SHARD)
    row = get_tailer(identifier)
    get_store().tailers.seek(row.identifier, shard, position, who=by)
    return row


# The verbs on tailers.


class _Line(operation_Kind):
    """One printable line of text, of up to ``most`` characters."""

    most: int

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        if not isinstance(value, str) or len(value.splitlines()) > 1:
            raise ValueError(f"It must be one line of text, not {value!r}.")
        check_lines("It", value, self.most)
        return value


class Shard(_Line):
    """The name of a shard."""

    most = MAX_SHARD
    schema = {"type": "string", "maxLength": MAX_SHARD}


class Position(_Line):
    """A position in a source."""

    most = MAX_POSITION
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_POSITION}

    def from_json(self, value: Any) -> str:
        found = super().from_json(value)
        if not found:
            raise ValueError("It must not be empty.")
        return found


_SHARD = Parameter(
    name="shard",
    kind=Shard(),
    help="The shard, as the list of cursors names it: a file, a partition.",
    is_required=True,
)


def _seek(row: Tailer, *, by: str, **given: Any) -> Tailer:
    return seek(row.identifier, by=by, **given)


def _forget(row: Tailer, *, by: str, **given: Any) -> Tailer:
    return forget_cursor(row.identifier, by=by, **given)


VERBS = (
    Verb(
        name="seek",
        label="Seek",
        phrase="Have {} go on elsewhere",
        explanation="Have a tailer go on from another position of a shard.",
        call=_seek,
        told=lambda _, row: "The cursor is set.",
        parameters=(
            _SHARD,
            Parameter(
                name="position",
                kind=Position(),
                help="As the list of cursors shows it; a number that follows may be left out.",
                is_required=True,
            ),
        ),
        permission=CONTROL,
    ),
    Verb(
        name="forget",
        label="Read again",
        phrase="Have {} read a shard again",
        explanation="Forget how far a shard has been read: the source decides where it begins.",
        call=_forget,
        told=lambda _, row: "The cursor is forgotten.",
        parameters=(_SHARD,),
        permission=CONTROL,
    ),
)
