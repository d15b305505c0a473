"""Sentences about Tasks that wait for other nodes of their graph or Instances of their schedule."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from ..models import Task
from ..rows.task import BLOCKED


def due(task: Task) -> datetime | None:
    """Return the due time of a Task; None while it waits for other nodes of its graph."""
    return task.due_at if task.due_at < BLOCKED else None


def behind(name: str, uuid: UUID, count: int) -> str:
    """Return a sentence about the ``count`` Instances of its schedule that an Instance waits for.

    ``name`` and ``uuid`` are those of the first of these Instances.
    """
    others = f" and {count - 1:,} other{'s' if count > 2 else ''}" if count > 1 else ""
    return f"It waits behind {name} ({uuid}){others}: its schedule runs one at a time."


def sentence(names: Iterable[str], count: int) -> str:
    """Return "It waits for merge and 2 others.", from the names of some of ``count`` nodes."""
    named = list(names)
    others = count - len(named)
    if not named:
        return f"It waits for {count:,} nodes of its graph."
    more = f" and {others:,} other{'s' if others > 1 else ''}" if others > 0 else ""
    return f"It waits for {', '.join(named)}{more}."
