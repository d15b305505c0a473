"""The log of gates, limits and Types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..conf import settings
from ..models import LogRecord
from ..verbs.control.scope import scope_of
from ..verbs.migrated import needs_tables

if TYPE_CHECKING:
    from ..verbs.types import TypeLike


@needs_tables
def scope_log(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    kind: str = "",
    limit: int = 100,
) -> list[LogRecord]:
    """Return the latest records about a scope, the newest first, each with its ``scope``.

    ``scope`` is a pair: the identifier of the Type, and the collection. Records of a Type include
    those of its lanes. Without a Type the scope is everything. ``kind`` ("gate" or "limits")
    selects records; with a ``kind`` and no Type, of all scopes. Raises UnknownType, InvalidGate.
    """
    scope = scope_of(type, collection)
    records = LogRecord.objects.using(settings.DATABASE)
    if collection is not None:
        records = records.about(scope.subject[:255])
    elif scope.type is not None:
        records = records.about_type(scope.type.identifier)
    elif kind:
        records = records.about_any()
    else:
        records = records.about(scope.subject)
    if kind:
        records = records.filter(kind=kind)
    found = list(records.reverse()[:limit])
    for record in found:
        record.scope = _scope(record.subject)  # type: ignore[attr-defined]
    return found


def _scope(subject: str) -> tuple[str | None, str | None]:
    """Return the identifier of the Type and the collection for the subject of a record."""
    noun, _, name = subject.partition(":")
    if noun not in ("type", "lane"):
        return None, None
    identifier, _, collection = name.partition("/")
    return identifier, collection if noun == "lane" else None
