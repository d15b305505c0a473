"""Downstreams as documents: their state, the Types that call them, and the due Tasks of these."""

from __future__ import annotations

from typing import Any

from ..conf import settings
from ..models import Downstream, Task, Type
from . import overview

FIELDS = (
    *("name", "state", "per_second", "ceiling", "floor", "not_before", "trips", "who", "since"),
)
# The maximum number of Tasks that are counted.
MOST = 1000


def document(row: Downstream) -> dict[str, Any]:
    """Return a downstream as plain values, with the identifiers of the Types that call it."""
    return {name: getattr(row, name) for name in FIELDS} | {"types": calling(row)}


def calling(row: Downstream) -> list[str]:
    """Return the identifiers of the Types that call a downstream."""
    types = Type.objects.using(settings.DATABASE).filter(downstream=row.name)
    return list(types.values_list("identifier", flat=True))


def due(row: Downstream) -> int:
    """Return the number of due Tasks that call a downstream, counted up to :data:`MOST`."""
    tasks = Task.objects.using(settings.DATABASE).filter(type__downstream=row.name)
    return tasks.due(overview.now()).order_by()[:MOST].count()
