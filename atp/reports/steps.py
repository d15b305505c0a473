"""The steps of an Instance: in full as documents, and abbreviated for a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Left

from ..models import Step
from ..payload import codec
from ..words import wording
from . import documents

FIELDS = ("name", "attempt", "started", "finished", "until", "format")
# The maximum number of characters of a result in a table.
SHOWN = 200


def document(row: Step, now: datetime) -> dict[str, Any]:
    """Return a step as plain values; ``value`` is the stored result.

    It is None if there is no result, and for a pickle, which is never opened.
    """
    is_json = row.data is not None and row.format == codec.JSON
    return {name: getattr(row, name) for name in FIELDS} | {
        "is_done": row.finished is not None or (row.until is not None and row.until <= now),
        "value": documents.stored(row.data) if is_json else None,  # type: ignore[arg-type]
    }


@dataclass(frozen=True, kw_only=True)
class ShortStep:
    """A step for a table; ``text`` is the beginning of its result, None if that is no JSON."""

    name: str
    attempt: int
    started: datetime
    finished: datetime | None
    until: datetime | None
    format: str
    text: str | None

    @property
    def took(self) -> timedelta | None:
        """The duration of the step, or of its sleep; None if unknown."""
        end = self.finished or self.until
        return None if end is None else max(end - self.started, timedelta())


def abbreviated(rows: QuerySet[Step], limit: int) -> list[ShortStep]:
    """Return the first ``limit`` steps, reading of each result only what a table shows."""
    found = rows.annotate(beginning=Left("data", SHOWN + 1)).values(*FIELDS, "beginning")
    return [_shortened(row) for row in found[:limit]]


def _shortened(row: dict[str, Any]) -> ShortStep:
    beginning = row.pop("beginning")
    is_text = beginning is not None and row["format"] == codec.JSON
    return ShortStep(**row, text=wording.shorten(beginning, SHOWN) if is_text else None)
