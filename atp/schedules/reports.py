"""Convert schedules to documents, with their parameters, next runs, and outcomes of slots."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q, Subquery, Sum

from ..conf import settings
from ..exceptions import InvalidSchedule
from ..models import Instance, Schedule, Slot, Task, Type
from ..payload import codec
from ..reports import overview
from ..reports.documents import describe_hooks, masked_data
from ..store.facts import timing_of
from . import operations
from .models import Outcome
from .timing import Timing

FIELDS = (
    *("identifier", "collection", "priority", "cron", "every", "timezone", "missed", "most"),
    *("window", "late_after", "overlap", "jitter", "start_before", "timeout", "next_at"),
    *(
        "paused_since",
        "paused_until",
        "paused_by",
        "paused_reason",
        "is_set",
        "who",
        "since",
        "revision",
        "retired",
        "trouble",
    ),
)
# The outcomes of slots that were not run, and the keys for their numbers within LATELY.
NOT_RUN = {Outcome.MISSED: "missed_lately", Outcome.SKIPPED: "skipped_lately"}
LATELY = timedelta(days=1)
SLOT_FIELDS = ("at", "until", "count", "is_more", "outcome", "decided", "who", "message")


def documents(type: Type | None = None) -> list[dict[str, Any]]:
    """Return a document for each schedule, or only for the schedules of one Type.

    Each document contains the last slot of its schedule.
    """
    return schedule_documents(
        [row for row in operations.schedules() if type is None or row.type == type]
    )


def document(row: Schedule) -> dict[str, Any]:
    """Return a schedule as a document, with its last slot."""
    return schedule_documents([row])[0]


def schedule_documents(rows: list[Schedule]) -> list[dict[str, Any]]:
    """Return a document for each of these schedules, in a fixed number of queries.

    This sets the attribute ``now`` of each row to the time at which its document is valid.
    """
    if not rows:
        return []
    now, last = overview.now(), _find_last_slots(rows)
    not_run = _count_not_run(rows, now - LATELY)
    for row in rows:
        row.now = now
    return [
        _row_document(row, now) | {"last_slot": last.get(row.pk)} | not_run[row.pk] for row in rows
    ]


def _row_document(row: Schedule, now: datetime) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in FIELDS}
    found |= {"type": row.type.identifier, "state": state(row, now), "words": words(row)}
    found |= describe_hooks(row.hooks)
    if not row.is_paused(now):  # the row may contain a pause that has ended
        found |= {"paused_since": None, "paused_until": None, "paused_by": "", "paused_reason": ""}
    found["inputs"] = json.loads(masked_data(row)) if row.format == codec.JSON else None
    return found


def slots(rows: list[Slot]) -> list[dict[str, Any]]:
    """Return Slots as documents; ``instance`` is the uuid of the Instance, or None without one."""
    instances = Instance.objects.using(settings.DATABASE).filter(
        pk__in=[row.instance_id for row in rows if row.instance_id is not None]
    )
    uuids = dict(instances.values_list("pk", "uuid"))
    return [
        {name: getattr(row, name) for name in SLOT_FIELDS}
        | {"instance": uuids.get(row.instance_id or 0)}
        for row in rows
    ]


def state(row: Schedule, now: datetime) -> str:
    """Return the state of a schedule: "active", "paused", "retired" or "in trouble"."""
    if row.retired is not None:
        return "retired"
    if row.is_paused(now):
        return "paused"
    return "in trouble" if row.trouble else "active"


def in_line(row: Schedule) -> tuple[int, int]:
    """Return how many Instances are in the line of a schedule, and how many of them wait.

    In a line, each Instance waits for all earlier Instances.
    """
    tasks = Task.objects.using(settings.DATABASE).filter(
        instance__node__schedule=row, instance__node__graph__isnull=True
    )
    waits = list(tasks.values_list("waits", flat=True))
    return len(waits), sum(map(bool, waits))


def words(row: Schedule) -> str:
    """Return the timing of a schedule in words, or "" if the timing is invalid."""
    try:
        return timing_of(row).words()
    except InvalidSchedule:
        return ""


def upcoming_of(row: Schedule, count: int) -> list[dict[str, Any]]:
    """Return the next runs of a schedule; [] if it is retired or its timing is invalid."""
    if row.retired is not None:
        return []
    try:
        return upcoming(timing_of(row), count)
    except InvalidSchedule:
        return []


def upcoming(timing: Timing, count: int, since: datetime | None = None) -> list[dict[str, Any]]:
    """Return the next ``count`` runs after now, or from ``since`` on.

    Each run contains its time in UTC (``at``), its time in the schedule's time zone (``local``, in
    ISO 8601), and a ``remark`` if the clock of that zone changes at this time.
    """
    after = overview.now() if since is None else since - timedelta.resolution
    return [
        {"at": run.slot, "local": run.local.isoformat(), "remark": run.remark}
        for run in timing.upcoming(count, after)
    ]


def _count_not_run(rows: list[Schedule], since: datetime) -> dict[int, dict[str, int]]:
    """Count the slots since a time that were missed or skipped, by primary key of the schedule.

    A row that stands for several slots counts in full if its last slot is recent enough.
    """
    own = Slot.objects.using(settings.DATABASE).filter(schedule__in=rows, outcome__in=NOT_RUN)
    own = own.filter(Q(at__gte=since) | Q(until__gte=since)).order_by()
    counts = own.values_list("schedule", "outcome").annotate(Sum("count"))
    found: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(NOT_RUN.values(), 0))
    for key, outcome, count in counts:
        found[key] |= {NOT_RUN[outcome]: count}
    return found


def _find_last_slots(rows: list[Schedule]) -> dict[int, dict[str, Any]]:
    """Return the last slot of each schedule, by primary key of the schedule."""
    own = Slot.objects.using(settings.DATABASE)
    newest = own.filter(schedule=OuterRef("pk")).order_by("-at").values("pk")[:1]
    keys = Schedule.objects.using(settings.DATABASE).filter(pk__in=[row.pk for row in rows])
    last = list(own.filter(pk__in=keys.values_list(Subquery(newest))))
    return {row.schedule_id: slot for row, slot in zip(last, slots(last), strict=True)}
