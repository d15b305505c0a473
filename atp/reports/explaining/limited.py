"""The limits that allow no further start, and how full they are: one query for several Types."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q

from ...conf import settings
from ...models import Daemon, Limit, Task
from ...rows.querysets import Counted
from ...store.buckets import Bucket
from .facts import Full


def rows(selected: Q, collection: str | None = None) -> list[Any]:
    """Return the selected Limits, each with its numbers of claimed Tasks: ``held_in_…``.

    ``held_in_lane`` is the number in the lane with this collection.
    """
    # Filtering by the few daemons lets the database use the index on claimed Tasks.
    daemons = Daemon.objects.using(settings.DATABASE).values("pk")
    held = Task.objects.using(settings.DATABASE).filter(daemon__in=daemons, type=OuterRef("type"))
    held = held.order_by()
    found = Limit.objects.using(settings.DATABASE).filter(selected).select_related("type")
    return list(
        found.annotate(
            held_in_all=Counted(held.values("pk")),
            held_in_own=Counted(held.filter(collection=OuterRef("collection")).values("pk")),
            held_in_lane=Counted(held.filter(collection=collection or "").values("pk")),
        )
    )


def full(rows: Iterable[Any], collection: str | None, now: datetime) -> list[Full]:
    """Return the limits that block a lane; with collection None, those that block all lanes.

    ``rows`` are the Limits of its Type, as :func:`rows` returns them.
    """
    known = [row for row in rows if row.collection in (None, collection)]
    told = [told for row in known if (told := full_of(row, now)) is not None]
    if collection is None or any(_is_own(row) for row in known):
        return told
    return told + [
        Full(limit=row, kind="lane", held=row.held_in_lane)
        for row in known
        if row.collection is None
        and row.max_running_per_collection is not None
        and row.held_in_lane >= row.max_running_per_collection
    ]


def full_of(row: Any, now: datetime) -> Full | None:
    """Return how a Limit blocks starts in all of its scope; None if it does not."""
    held = row.held_in_all if row.collection is None else row.held_in_own
    bucket = Bucket.of(row, row.type.identifier, now, held=held)
    if bucket.is_full:
        return Full(limit=row, kind="running", held=held)
    if not bucket.room:
        return Full(limit=row, kind="rate", held=held, at=now + timedelta(seconds=bucket.seconds))
    return None


def _is_own(row: Limit) -> bool:
    """Whether it is a lane's own ``max_running``, which replaces the limit of each lane."""
    return row.collection is not None and row.max_running is not None
