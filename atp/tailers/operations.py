"""The operations on tailers and their cursors, and functions that return them as documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from ..conf import settings
from ..exceptions import InvalidOption, UnknownType
from ..models import Cursor, Instance, Kind, LogRecord, Schedule, Tailer
from ..operations.base import check_actor, needs_tables
from ..operations.operation import CONTROL, Operation, Parameter
from ..operations.operation import Kind as ParameterKind
from ..options import check_lines
from ..reports import overview
from ..sources import base as sources
from ..states import State
from ..store import get_store
from ..text import did_you_mean
from .models import MAX_SHARD

# The fields of the documents of tailers, and of cursors.
FIELDS = (
    *("identifier", "source", "read_at", "records", "enqueued", "rejected", "behind", "gaps"),
    *("lost", "lost_at", "passed_over", "skipped", "error"),
)
CURSOR_FIELDS = ("shard", "position", "moved", "missing_since")
# The number of cursors that pages and shell show: those that moved last.
MOST_CURSORS = 100
# The number of log records that are shown: the newest.
MOST_LOG_RECORDS = 50
# The kinds of log records about the tailer of a Type.
LOG_KINDS = (Kind.CURSOR, Kind.GAP, Kind.SOURCE)
# The states of a tailer.
READING, PAUSED, FAILING = "reading", "paused", "failing"
# The longest position that an operator can set, in characters.
MAX_POSITION = 1000

# Documents of tailers and their cursors, and the log of a tailer.


def tailer_of_type(identifier: str) -> str | None:
    """Return the identifier of the tailer to which a Type belongs, or None.

    A tailer "scenes" has two Types: ``scenes``, and ``scenes.rejected`` for rejected records.
    """
    name = identifier.removesuffix(".rejected")
    rows = Tailer.objects.using(settings.DATABASE).filter(identifier=name)
    return name if rows.exists() else None


def documents(rows: Iterable[Tailer]) -> list[dict[str, Any]]:
    """Return tailers as dictionaries of plain values, with few queries for all of them together.

    ``state`` is "paused" if the schedule is paused, "failing" if the last attempt failed or is
    being retried, and "reading" otherwise. ``why`` says why a tailer is paused or has stopped.
    """
    rows = list(rows)
    names = [row.identifier for row in rows]
    reasons, failing = _pause_reasons(names), set(_failing_names(names))
    return [
        _make_document(row, reasons.get(row.identifier), row.identifier in failing) for row in rows
    ]


def document(row: Tailer) -> dict[str, Any]:
    """Return a tailer as a dictionary of plain values; see :func:`documents`."""
    return documents([row])[0]


def cursor(row: Cursor) -> dict[str, Any]:
    """Return a cursor as a dictionary of plain values."""
    return {name: getattr(row, name) for name in CURSOR_FIELDS}


def log(row: Tailer) -> QuerySet[LogRecord]:
    """Return a tailer's log records, newest first: lost or unreadable records, and set cursors."""
    records = LogRecord.objects.using(settings.DATABASE).about(f"type:{row.identifier}")
    return records.filter(kind__in=LOG_KINDS).reverse()[:MOST_LOG_RECORDS]


def _make_document(row: Tailer, pause: str | None, is_failing: bool) -> dict[str, Any]:
    state = FAILING if is_failing or row.error else READING
    return {name: getattr(row, name) for name in FIELDS} | {
        "notes": row.notes.splitlines(),
        "state": state if pause is None else PAUSED,
        "why": row.error or pause or "",
    }


def _pause_reasons(names: list[str]) -> dict[str, str]:
    """Return why schedules of tailers are paused, by identifier, for those that are paused."""
    now = overview.now()
    rows = Schedule.objects.using(settings.DATABASE).filter(identifier__in=names)
    return {row.identifier: row.paused_reason for row in rows if row.is_paused(now)}


def _failing_names(names: list[str]) -> Iterator[str]:
    """Yield the identifiers of tailers whose attempts failed since the source was last read."""
    rows = Instance.objects.using(settings.DATABASE).filter(type__identifier__in=names)
    yield from rows.live().filter(retries__gt=0).values_list("type__identifier", flat=True)
    read = Tailer.objects.using(settings.DATABASE).filter(identifier=OuterRef("type__identifier"))
    failed = rows.filter(state=State.FAILED, finished__gte=Subquery(read.values("read_at")))
    yield from failed.values_list("type__identifier", flat=True)


# The operations on tailers: listing them and their cursors, and setting a cursor.


@needs_tables
def tailers() -> list[Tailer]:
    """Return the tailers that have read their source at least once, sorted by identifier."""
    return list(Tailer.objects.using(settings.DATABASE))


@needs_tables
def get_tailer(identifier: str) -> Tailer:
    """Return the tailer with this identifier. Raises UnknownType if it never read its source."""
    rows = Tailer.objects.using(settings.DATABASE)
    row = rows.filter(identifier=identifier).first() if str(identifier).isprintable() else None
    if row is None:
        hint = did_you_mean(identifier, rows.values_list("identifier", flat=True))
        raise UnknownType(f"No tailer {identifier!r} has read its source.{hint}")
    return row


@needs_tables
def cursors(identifier: str, *, limit: int = 1000) -> list[Cursor]:
    """Return the cursors of a tailer, the last moved first. Raises UnknownType."""
    row = get_tailer(identifier)
    rows = Cursor.objects.using(settings.DATABASE).filter(tailer=row.identifier)
    return list(rows.order_by("-moved", "pk")[:limit])


@needs_tables
def seek(identifier: str, *, shard: str, position: str, by: str = "") -> Tailer:
    """Make a tailer continue from another position in a shard; return the row of the tailer.

    The source defines positions: for Kafka the offset of the next record, for Redis the id of the
    last entry read. An attempt that is reading the shard now does not commit its own position.
    Raises UnknownType. Raises InvalidOption if the tailer has no such cursor, or if the source that
    this process declares has no such position.
    """
    check_lines("position", position, MAX_POSITION)
    if not position:
        raise InvalidOption("position must not be empty. To forget a cursor, call forget_cursor().")
    source = sources.declared.get(identifier)
    if source is not None:
        try:
            source.check_position(position)
        except ValueError as error:
            raise InvalidOption(f"position: {error}") from None
    return _set_cursor(identifier, shard, position, by)


@needs_tables
def forget_cursor(identifier: str, *, shard: str, by: str = "") -> Tailer:
    """Forget how far a tailer has read a shard; return the row of the tailer.

    The source decides where reading begins again. For example, a Directory reads the file once
    more. Raises UnknownType or InvalidOption.
    """
    return _set_cursor(identifier, shard, None, by)


def _set_cursor(identifier: str, shard: str, position: str | None, by: str) -> Tailer:
    check_actor(by)
    check_lines("shard", shard, MAX_SHARD)
    row = get_tailer(identifier)
    get_store().tailers.seek(row.identifier, shard, position, who=by)
    return row


# The entries in the table of operations.


class _LineKind(ParameterKind):
    """The kind of a parameter that is one printable line of up to ``most`` characters."""

    most: int

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        if not isinstance(value, str) or len(value.splitlines()) > 1:
            raise ValueError(f"It must be one line of text, not {value!r}.")
        check_lines("It", value, self.most)
        return value


class Shard(_LineKind):
    """The kind of a parameter that is the name of a shard."""

    most = MAX_SHARD
    schema = {"type": "string", "maxLength": MAX_SHARD}


class Position(_LineKind):
    """The kind of a parameter that is a position in a source."""

    most = MAX_POSITION
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_POSITION}

    def from_json(self, value: Any) -> str:
        position = super().from_json(value)
        if not position:
            raise ValueError("It must not be empty.")
        return position


_SHARD = Parameter(
    name="shard",
    kind=Shard(),
    help="The shard, as the list of cursors names it: a file, a partition.",
    is_required=True,
)


def _call_seek(row: Tailer, *, by: str, **parameters: Any) -> Tailer:
    return seek(row.identifier, by=by, **parameters)


def _call_forget(row: Tailer, *, by: str, **parameters: Any) -> Tailer:
    return forget_cursor(row.identifier, by=by, **parameters)


VERBS = (
    Operation(
        name="seek",
        label="Seek",
        phrase="Make {} continue elsewhere",
        explanation="Make a tailer continue from another position in a shard.",
        call=_call_seek,
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
    Operation(
        name="forget",
        label="Read again",
        phrase="Have {} read a shard again",
        explanation="Forget how far a shard has been read. The source decides where to begin.",
        call=_call_forget,
        told=lambda _, row: "The cursor is forgotten.",
        parameters=(_SHARD,),
        permission=CONTROL,
    ),
)
