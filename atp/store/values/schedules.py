"""A schedule as it is declared or edited, and the outcome of planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from ...models import Schedule
from ...payload.codec import Payload
from ...schedules.timing import Cron, Every, Timing
from .types import Registration

_PLAIN = ("cron", "timezone", "missed", "most", "overlap", "collection", "priority", "takes_slot")
_LENGTHS = ("every", "window", "late_after", "jitter")
# A document lacks these if they are not set: so an upgrade declares no schedule again.
_OPTIONAL = ("start_before", "timeout", "hooks")


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """All parameters of a schedule. Exactly one of ``cron`` and ``every`` is given.

    A slot counts as missed if it was not planned within ``late_after``. At most ``most`` missed
    slots are run, none older than ``window``. ``jitter`` is the longest delay of a slot.
    ``start_before`` counts from the slot. ``hooks`` are in the format of :mod:`.hooks`;
    ``hook_types`` are their Types, which are registered together with the schedule.
    """

    identifier: str
    type: str
    inputs: Payload
    takes_slot: bool = False
    collection: str = ""
    priority: int = 0
    cron: str = ""
    every: timedelta | None = None
    timezone: str = "UTC"
    missed: str = "one"
    most: int = 100
    window: timedelta = timedelta(days=1)
    late_after: timedelta = timedelta(minutes=1)
    overlap: str = "allow"
    jitter: timedelta = timedelta(0)
    start_before: timedelta | None = None
    timeout: timedelta | None = None
    hooks: list[dict[str, Any]] | None = None
    hook_types: tuple[Registration, ...] = field(default=(), compare=False)

    @property
    def timing(self) -> Timing:
        """The times of its slots. Raises InvalidSchedule."""
        return timing_of(self)

    def columns(self) -> dict[str, Any]:
        """Return the columns of the schedule's row, except its Type."""
        named = {name: getattr(self, name) for name in (*_PLAIN, *_LENGTHS, *_OPTIONAL)}
        return named | {"format": self.inputs.format, "data": self.inputs.data}

    def document(self) -> dict[str, Any]:
        """Return plain values, which can be compared with an earlier declaration."""
        own = {name: getattr(self, name) for name in (*_PLAIN, *_LENGTHS)}
        given = {name: getattr(self, name) for name in _OPTIONAL}
        own |= {name: value for name, value in given.items() if value is not None}
        plain = {k: v.total_seconds() if isinstance(v, timedelta) else v for k, v in own.items()}
        return plain | {"type": self.type, "inputs": list(self.inputs)}


def timing_of(timed: ScheduleSpec | Schedule) -> Timing:
    """Return the times of a schedule's slots. Raises InvalidSchedule."""
    if timed.cron:
        return Cron(timed.cron, timed.timezone)
    return Every(timed.every or timedelta(), timezone=timed.timezone)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The outcome of planning.

    ``decided`` slots got an outcome, and ``enqueued`` Instances were made; after a backfill,
    ``instances`` are their uuids. ``is_whole`` says that nothing more was due.
    """

    decided: int = 0
    enqueued: int = 0
    is_whole: bool = True
    instances: tuple[UUID, ...] = ()
