"""Gathering the facts in ten queries at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.functions import JSONObject

from ...conf import settings
from ...graphs.models import SATISFIED
from ...models import (
    Daemon,
    Downstream,
    Edge,
    Gate,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Schedule,
    Task,
    Type,
    signature_in,
)
from ...operations.gates import gates
from ...operations.registry import registry
from ...querysets import CLAIMING_ORDER, Counted, TaskQuerySet
from ...states import Event
from ...store import get_store
from ...store.buckets import Bucket
from ...text import seconds
from .. import overview, releases
from ..documents import Document
from ..statistics import histogram, quantiles_of, start_rate
from ..timeline import NOT_RUNNING
from .facts import MOST_COUNTED, Facts, Flow, Full, Queued

# The queue around a waiting Task: the Tasks ahead, the rival Types, and the speed of its Type.

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


# Gathering: the facts about an Instance, a Type or a lane, in ten queries at most.
#
# On PostgreSQL the clock is one of them, and returns open transactions and their locks too. The
# others read: the Instance with its Task, holder and log; the daemons, and what fits none of them;
# the gates; the limits with their claimed Tasks; the queue around it; the speed of its Type. A fact
# that would not change the answer is not read: the query for blocking nodes, or for the daemon that
# last served it, replaces others.

# A transaction that has been open for this long, in seconds, is reported.
LONG = 60.0
# And after this time if it has locked the Task or a table. Daemons hold such locks for less.
LOCKING = 2.0
# The maximum number of blocking nodes that are named.
MOST_NODES = 3
# The newest removals among which that of an Instance is looked for.
MOST_REMOVALS = 500
_RECORD = ("kind", "detail", "message", "who", "attempt", "time")


def of_instance(uuid: UUID, *, estimates: bool = True) -> Facts:
    """Gather the facts about the Instance with this uuid, whether it exists or not.

    Without ``estimates`` the speed of its Type is not read.
    """
    now, transactions = get_store().open_transactions(LONG, locking=LOCKING, instance=uuid)
    rows = Instance.objects.using(settings.DATABASE).select_related("type", "task__daemon")
    instance = rows.annotate(**_newest()).filter(uuid=uuid).first()
    if instance is None:
        return Facts(now=now, missing=str(uuid), trace=_trace(uuid))
    task: Task | None = getattr(instance, "task", None)
    facts = Facts(
        now=now,
        transactions=transactions,
        type=instance.type,
        instance=instance,
        task=task,
        last=_record(instance.last),  # type: ignore[attr-defined]
        asked=_record(instance.asked),  # type: ignore[attr-defined]
        pause=_record(instance.pause),  # type: ignore[attr-defined]
        word=_record(instance.word),  # type: ignore[attr-defined]
    )
    if instance.is_terminal or task is None:
        return facts
    rows = overview.daemons()
    facts = replace(facts, daemons=releases.told(rows, now), cancel_grace=_grace(instance.type))
    if not facts.is_waiting:
        return _of_claimed(facts) if estimates else facts
    if facts.last and signature_in(facts.last["detail"]) is not None:
        told, is_elsewhere = releases.why(instance, rows, now)
        facts = replace(facts, misfit=told, is_fit_elsewhere=is_elsewhere)
    if facts.is_blocked:
        return replace(_with_control(facts), upstream=_upstream(task))
    return _of_waiting(facts, estimates)


def of_type(type: Type, collection: str | None, *, estimates: bool = True) -> Facts:
    """Gather the facts about an Instance that would be enqueued now, in a Type or in a lane."""
    now, transactions = get_store().open_transactions(LONG, locking=LOCKING)
    rows = overview.daemons()
    facts = Facts(
        now=now,
        transactions=transactions,
        type=type,
        collection=collection,
        daemons=releases.told(rows, now),
        misfit=" ".join(releases.problems(rows, now, type.identifier)),
        schedule=_paused_schedule(type, now),
    )
    return _of_waiting(facts, estimates)


def _of_waiting(facts: Facts, estimates: bool) -> Facts:
    facts = _with_control(facts)
    if not facts.serving:
        return replace(facts, served_last=_served_last(facts.type))
    facts = replace(facts, queued=queued(facts))
    return replace(facts, flow=flow(facts.type, facts.now)) if estimates else facts


def _of_claimed(facts: Facts) -> Facts:
    return replace(facts, flow=flow(facts.type, facts.now))


def _with_control(facts: Facts) -> Facts:
    shut = gates(now=facts.now)
    of_lane = Q(collection__isnull=True) | Q(collection=facts.lane)
    rows = limited_rows(Q(type=facts.type) & of_lane, facts.lane)
    return replace(
        facts,
        gates=[gate for gate in shut if covers(gate, facts)],
        limits=rows,
        full=limited_full(rows, facts.lane, facts.now),
        downstream=_downstream(facts.type),
    )


def _downstream(type: Type | None) -> Downstream | None:
    """Return the downstream of a Type, if it restricts calls; otherwise None."""
    if type is None or not type.downstream:
        return None
    rows = Downstream.objects.using(settings.DATABASE).filter(name=type.downstream)
    return rows.exclude(state="closed").first()


def _paused_schedule(type: Type, now: datetime) -> Schedule | None:
    """Return the schedule that has the name of its Type, if it is paused; otherwise None."""
    rows = Schedule.objects.using(settings.DATABASE)
    row = rows.filter(type=type, identifier=type.identifier, retired__isnull=True).first()
    return row if row is not None and row.is_paused(now) else None


def covers(row: Any, facts: Facts) -> bool:
    """Whether a Gate or a Limit applies to the lane of these facts."""
    if row.type_id is None:
        return True
    own = None if facts.type is None else facts.type.pk
    return row.type_id == own and row.collection in (None, facts.lane)


def _newest() -> dict[str, Any]:
    """Return the subqueries for the log records that are read with an Instance, by name."""
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=OuterRef("pk"))
    records = records.order_by("-pk")
    named = {name: name for name in _RECORD}
    return {
        name: Subquery(rows.values(told=JSONObject(**named))[:1])
        for name, rows in (
            ("last", records.filter(kind__in=Event.values)),
            ("asked", records.filter(kind=Kind.ASK)),
            ("pause", records.filter(kind=Event.PAUSE)),
            ("word", records),
        )
    }


def _record(found: Any) -> Document | None:
    """Return a log record with its time as a datetime; the database's JSON has it as text."""
    if found is None:
        return None
    time = datetime.fromisoformat(found["time"])
    return found | {"time": time if time.tzinfo else time.replace(tzinfo=UTC)}


def _grace(type: Type) -> timedelta:
    """Return how long a cancelled attempt of the Type may go on, as far as this process knows."""
    declared = registry.get(type.identifier) if type.identifier in registry else None
    given = None if declared is None else declared.cancel_grace
    return seconds(settings.CANCEL_GRACE if given is None else given)


def _upstream(task: Task | None) -> list[Document]:
    """Return some of the nodes that a Task waits for, each with its Instance's uuid and state."""
    edges = Edge.objects.using(settings.DATABASE).filter(~SATISFIED, downstream=task.pk)  # type: ignore[union-attr]
    names = {
        "name": "upstream__name",
        "graph": "upstream__graph__uuid",
        "schedule": "upstream__schedule__identifier",
        "uuid": "upstream__instance__uuid",
        "state": "upstream__instance__state",
    }
    rows = edges.order_by("upstream_id").values_list(*names.values())[:MOST_NODES]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _served_last(type: Type | None) -> Document | None:
    """Return the claim record of the Type's last ended Instance (it names its daemon), or None."""
    ended = Instance.objects.using(settings.DATABASE).filter(type=type, finished__isnull=False)
    newest = ended.order_by("-finished").values("pk")[:1]
    records = LogRecord.objects.using(settings.DATABASE).filter(instance__in=Subquery(newest))
    found: Any = records.filter(kind=Event.CLAIM).order_by("-pk").values("who", "time").first()
    return found


def _trace(uuid: UUID) -> Document | None:
    """Return the log record of the removal that names this Instance, if it is a recent one."""
    records = LogRecord.objects.using(settings.DATABASE).about_any().filter(kind=Kind.REMOVED)
    recent = records.order_by("-pk").values("subject", "time", "who", "message")
    found: Any = (row for row in recent[:MOST_REMOVALS] if str(uuid) in row["message"])
    return next(found, None)


# The limits that allow no further start, and how full they are: one query for several Types.


def limited_rows(selected: Q, collection: str | None = None) -> list[Any]:
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


def limited_full(rows: Iterable[Any], collection: str | None, now: datetime) -> list[Full]:
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
