"""The queue around a waiting Task: the Tasks ahead, the rival Types, and the speed of its Type."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, Subquery

from ...conf import settings
from ...models import Gate, Instance, Limit, Task, Type
from ...rows.querysets import CLAIMING_ORDER, Counted, TaskQuerySet
from ..statistics import histogram, quantiles_of, start_rate
from ..timeline import NOT_RUNNING
from .facts import MOST_COUNTED, Facts, Flow, Queued

# The window in which starts are counted, and the maximum number of runs that are read.
WINDOW = timedelta(minutes=5)
RUNS = 300


def queued(facts: Facts) -> Queued:
    """Return the :class:`Queued` of a waiting Task, in one statement with bounded counts."""
    tasks = Task.objects.using(settings.DATABASE).waiting()
    own = tasks.filter(type=facts.type)
    lane = own if facts.lane is None else own.filter(collection=facts.lane)
    above, level = _before(lane, facts)
    # Two ranges of an index: those unlike the lane's name would be searched among all.
    below, beyond = own.none(), own.none()
    if facts.lane is not None:
        below, beyond = own.filter(collection__lt=facts.lane), own.filter(collection__gt=facts.lane)
    due = tasks.filter(type=OuterRef("pk"), due_at__lte=facts.now)
    weight = Limit.objects.using(settings.DATABASE).filter(
        type=OuterRef("pk"), collection__isnull=True
    )
    gate = Gate.objects.using(settings.DATABASE).filter(
        Q(until__isnull=True) | Q(until__gt=facts.now), type=OuterRef("pk"), collection__isnull=True
    )
    served = {name for daemon in facts.claiming for name in daemon["types"]} | {facts.identifier}
    rows = Type.objects.using(settings.DATABASE).filter(identifier__in=served).order_by("pk")
    # The database takes each of these counts once for all Types: none depends on the row.
    told = rows.annotate(
        is_due=Exists(due.order_by()),
        is_shut=Exists(gate.order_by()),
        weight=Subquery(weight.values("weight")[:1]),
        above=_bounded(above),
        level=_bounded(level),
        below=_bounded(below.filter(due_at__lte=facts.now)),
        beyond=_bounded(beyond.filter(due_at__lte=facts.now)),
    ).values(*("identifier", "is_due", "is_shut", "weight", "above", "level", "below", "beyond"))
    found = {row["identifier"]: row for row in told}
    mine: Any = found.pop(facts.identifier)
    return Queued(
        ahead=min(MOST_COUNTED, mine["above"] + mine["level"]),
        above=mine["above"],
        # Without a lane nothing is beside it.
        beside=min(MOST_COUNTED, (mine["below"] or 0) + (mine["beyond"] or 0)),
        rivals={
            name: row["weight"] or 1.0
            for name, row in found.items()
            if row["is_due"] and not row["is_shut"]
        },
        weight=mine["weight"] or 1.0,
    )


def _bounded(tasks: TaskQuerySet[Task]) -> Counted:
    return Counted(tasks.order_by().values("pk")[:MOST_COUNTED])


def _before(
    lane: TaskQuerySet[Task], facts: Facts
) -> tuple[TaskQuerySet[Task], TaskQuerySet[Task]]:
    """Return the Tasks before it in its lane: those of higher priority, and earlier ones (G8)."""
    assert CLAIMING_ORDER == ("-priority", "due_at", "instance_id")
    task = facts.task
    if task is None:
        return lane.filter(priority__gt=0, due_at__lte=facts.now), lane.filter(
            priority=0, due_at__lte=facts.now
        )
    until = max(facts.now, task.due_at)
    above = lane.filter(priority__gt=task.priority, due_at__lte=until)
    level = lane.filter(priority=task.priority)
    earlier = Q(due_at__lt=task.due_at) | Q(due_at=task.due_at, instance__lt=task.pk)
    # The first condition is that of the index.
    return above, level.filter(earlier, due_at__lte=task.due_at)


def flow(type: Any, now: datetime) -> Flow:
    """Return the start rate and run times of a Type, in two queries at most.

    They are computed from the Instances that have ended in the last minutes. If none have ended, or
    the Type keeps none, they come from the daemons' counts (:mod:`..statistics`).
    """
    if type.retention == timedelta(0):
        rate = start_rate(type.identifier, seconds=WINDOW.total_seconds(), now=now)
        return _counted_flow(type, now, rate)
    ended = Instance.objects.using(settings.DATABASE).filter(
        type=type, finished__gte=now - WINDOW, started__isnull=False
    )
    # What was cancelled while it waited for a retry did not run until then.
    ended = ended.exclude(reason__in=NOT_RUNNING)
    newest = ended.order_by("-finished").values_list("started", "finished")
    rows: list[Any] = list(newest[:RUNS])
    if not rows:
        return _counted_flow(type, now)
    runs = sorted((finished - started).total_seconds() for started, finished in rows)
    # The rate counts from the oldest of these ends, as nothing may have run before it.
    span = (now - rows[-1][0]).total_seconds()
    return Flow(rate=len(rows) / max(span, 0.001), run=_quantiles(runs), runs=len(runs))


def _counted_flow(type: Any, now: datetime, rate: float = 0.0) -> Flow:
    """Return the flow by the daemons' counts of the last hour, in one query."""
    counts = histogram(type.identifier, "run", now=now)
    return Flow(rate=rate, run=quantiles_of(counts), runs=sum(counts))


def _quantiles(runs: list[float]) -> tuple[float, ...]:
    last = len(runs) - 1
    return tuple(runs[round(at * last)] for at in (0.5, 0.95, 0.99))
