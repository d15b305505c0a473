"""The verbs on error groups."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...conf import settings
from ...exceptions import InvalidOption
from ...models import ErrorGroup
from ...store import get_store
from ...words.options import check_lines, instant
from ..actor import check_by
from ..migrated import needs_tables
from .selection import error_group

if TYPE_CHECKING:
    from django.db.models import QuerySet

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
