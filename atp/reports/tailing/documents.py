"""The documents of tailers and their cursors."""

from __future__ import annotations

from typing import Any

from ...conf import settings
from ...models import Cursor, Tailer

FIELDS = ("identifier", "source", "read_at", "records", "enqueued", "rejected", "behind")
OF_CURSOR = ("shard", "position", "moved", "missing_since")
# The number of cursors that are shown, those that moved last.
SHOWN = 100


def of_type(identifier: str) -> str | None:
    """Return the identifier of the tailer to which a Type belongs; None if it belongs to none."""
    name = identifier.removesuffix(".rejected")
    found = Tailer.objects.using(settings.DATABASE).filter(identifier=name)
    return name if found.exists() else None


def document(row: Tailer) -> dict[str, Any]:
    """Return a tailer as plain values."""
    return {name: getattr(row, name) for name in FIELDS}


def cursor(row: Cursor) -> dict[str, Any]:
    """Return a cursor as plain values."""
    return {name: getattr(row, name) for name in OF_CURSOR}
