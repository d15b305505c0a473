"""The verbs of tailers: looking at sources and their cursors, and setting a cursor."""

from __future__ import annotations

from ...conf import settings
from ...exceptions import InvalidOption, UnknownType
from ...models import Cursor, Tailer
from ...rows.tailers.cursor import MAX_SHARD
from ...sources import base as sources
from ...store import get_store
from ...words.hints import did_you_mean
from ...words.options import check_lines
from ..actor import check_by
from ..migrated import needs_tables

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
