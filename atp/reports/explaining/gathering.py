"""Gather the facts about an Instance, a Type or a lane, in at most ten queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, Subquery
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
    read_signature,
)
from ...operations.gates import gates
from ...operations.registry import registry
from ...querysets import CLAIMING_ORDER, RowCount, TaskQuerySet
from ...states import NOT_RUNNING, Event
from ...store import get_store
from ...store.common.limits import Bucket
from ...text import as_timedelta
from .. import overview, releases
from ..documents import Document
from ..statistics import histogram, quantiles_of, start_rate
from .facts import MOST_COUNTED, Facts, Flow, FullLimit, QueuePosition

# The position of a waiting Task in the queue, the rival Types, and the speed of its Type.

# The period in which starts are counted, and the maximum number of runs that are read.
WINDOW = timedelta(minutes=5)
RUNS = 300


def read_queue(facts: Facts) -> QueuePosition:
    """Read the :class:`QueuePosition` of a waiting Task, in one query.

    Each of its counts stops at MOST_COUNTED.
    """
    tasks = Task.objects.using(settings.DATABASE).waiting()
    own = tasks.filter(type=facts.type)
    lane = own if facts.lane is None else own.filter(collection=facts.lane)
    above, level = _tasks_before(lane, facts)
    # Two ranges of an index: to find all other lanes by "not equal" would read every lane.
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
    # The database computes each count once for all Types: the counts do not depend on the row.
    annotated = rows.annotate(
        is_due=Exists(due.order_by()),
        is_shut=Exists(gate.order_by()),
        weight=Subquery(weight.values("weight")[:1]),
        above=_limited_count(above),
        level=_limited_count(level),
        below=_limited_count(below.filter(due_at__lte=facts.now)),
        beyond=_limited_count(beyond.filter(due_at__lte=facts.now)),
    ).values(*("identifier", "is_due", "is_shut", "weight", "above", "level", "below", "beyond"))
    found = {row["identifier"]: row for row in annotated}
    mine: Any = found.pop(facts.identifier)
    return QueuePosition(
        ahead=min(MOST_COUNTED, mine["above"] + mine["level"]),
        above=mine["above"],
        # The facts about a whole Type have no lane, so there are no other lanes.
        beside=min(MOST_COUNTED, (mine["below"] or 0) + (mine["beyond"] or 0)),
        rivals={
            name: row["weight"] or 1.0
            for name, row in found.items()
            if row["is_due"] and not row["is_shut"]
        },
        weight=mine["weight"] or 1.0,
    )


def _limited_count(tasks: TaskQuerySet[Task]) -> RowCount:
    return RowCount(tasks.order_by().values("pk")[:MOST_COUNTED])


def _tasks_before(
    lane: TaskQuerySet[Task], facts: Facts
) -> tuple[TaskQuerySet[Task], TaskQuerySet[Task]]:
    """Select the Tasks that start before the subject in its lane (G8), as two QuerySets.

    The first QuerySet contains Tasks with a higher priority. The second one contains Tasks with the
    same priority that were due earlier.
    """
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
    # The second condition lets the database use its index.
    return above, level.filter(earlier, due_at__lte=task.due_at)


def read_flow(type: Any, now: datetime) -> Flow:
    """Return the start rate and run times of a Type, in at most two queries.

    They are computed from the Instances that have ended in the last minutes. If there are none, or
    if the Type keeps no ended Instances, they are computed from the daemons' counts
    (:mod:`..statistics`).
    """
    if type.retention == timedelta(0):
        rate = start_rate(type.identifier, seconds=WINDOW.total_seconds(), now=now)
        return _counted_flow(type, now, rate)
    ended = Instance.objects.using(settings.DATABASE).filter(
        type=type, finished__gte=now - WINDOW, started__isnull=False
    )
    # An Instance that was cancelled while it waited for a retry did not run until its end.
    ended = ended.exclude(reason__in=NOT_RUNNING)
    newest = ended.order_by("-finished").values_list("started", "finished")
    rows: list[Any] = list(newest[:RUNS])
    if not rows:
        return _counted_flow(type, now)
    runs = sorted((finished - started).total_seconds() for started, finished in rows)
    # The rate counts from the oldest of these ends, because perhaps nothing ran before it.
    span = (now - rows[-1][0]).total_seconds()
    return Flow(rate=len(rows) / max(span, 0.001), run=_quantiles(runs), runs=len(runs))


def _counted_flow(type: Any, now: datetime, rate: float = 0.0) -> Flow:
    """Return the flow of a Type from the daemons' counts of the last hour, in one query."""
    counts = histogram(type.identifier, "run", now=now)
    return Flow(rate=rate, run=quantiles_of(counts), runs=sum(counts))


def _quantiles(runs: list[float]) -> tuple[float, ...]:
    last = len(runs) - 1
    return tuple(runs[round(at * last)] for at in (0.5, 0.95, 0.99))


# The facts about an Instance, a Type or a lane.
#
# On PostgreSQL one query reads the clock, the open transactions and their locks. Others read
# the Instance with its Task, holder and log; the daemons and the inputs that they refused; the
# gates; the limits with their claimed Tasks; the queue position; the Type's speed. Facts that
# would not change the answer are not read: the query for blocking nodes, or for the daemon that
# last served the Type, replaces others.

# A transaction is reported if it has been open for this long, in seconds.
LONG = 60.0
# And after this time if it has locked the Task or a table. Daemons hold such locks for less time.
LOCKING = 2.0
# At most this many blocking nodes are named.
MOST_NODES = 3
# The removal of an Instance is searched for among this many latest removals.
MOST_REMOVALS = 500
_RECORD_FIELDS = ("kind", "detail", "message", "who", "attempt", "time")


def gather_instance(uuid: UUID, *, estimates: bool = True) -> Facts:
    """Gather the facts about the Instance with this uuid, even if no Instance has the uuid.

    Without ``estimates``, the start rate and run times of the Type are not read.
    """
    now, transactions = get_store().open_transactions(LONG, locking=LOCKING, instance=uuid)
    rows = Instance.objects.using(settings.DATABASE).select_related("type", "task__daemon")
    instance = rows.annotate(**_newest_records()).filter(uuid=uuid).first()
    if instance is None:
        return Facts(now=now, missing=str(uuid), removal=_find_removal(uuid))
    task: Task | None = getattr(instance, "task", None)
    facts = Facts(
        now=now,
        transactions=transactions,
        type=instance.type,
        instance=instance,
        task=task,
        last=_parse_record(instance.last),  # type: ignore[attr-defined]
        command=_parse_record(instance.command),  # type: ignore[attr-defined]
        pause=_parse_record(instance.pause),  # type: ignore[attr-defined]
        newest=_parse_record(instance.newest),  # type: ignore[attr-defined]
    )
    if instance.is_terminal or task is None:
        return facts
    rows = overview.daemons()
    facts = replace(
        facts,
        daemons=releases.daemon_documents(rows, now),
        cancel_grace=_cancel_grace(instance.type),
    )
    if not facts.is_waiting:
        return replace(facts, flow=read_flow(facts.type, facts.now)) if estimates else facts
    if facts.last and read_signature(facts.last["detail"]) is not None:
        why, is_elsewhere = releases.why_incompatible(instance, rows, now)
        facts = replace(facts, incompatible=why, is_compatible_elsewhere=is_elsewhere)
    if facts.is_blocked:
        return replace(_with_controls(facts), upstream=_find_upstream(task))
    return _with_queue(facts, estimates)


def gather_type(type: Type, collection: str | None, *, estimates: bool = True) -> Facts:
    """Gather the facts about an Instance that would be enqueued now, in a Type or in a lane.

    ``collection`` is the lane, or None for the whole Type.
    """
    now, transactions = get_store().open_transactions(LONG, locking=LOCKING)
    rows = overview.daemons()
    facts = Facts(
        now=now,
        transactions=transactions,
        type=type,
        collection=collection,
        daemons=releases.daemon_documents(rows, now),
        incompatible=releases.describe_refused_inputs(rows, now, type.identifier).get(
            type.identifier, ""
        ),
        schedule=_find_paused_schedule(type, now),
    )
    return _with_queue(facts, estimates)


def _with_queue(facts: Facts, estimates: bool) -> Facts:
    """Add gates, limits, the position in the queue, and the speed of the Type to the facts."""
    facts = _with_controls(facts)
    if not facts.serving:
        return replace(facts, last_claim=_find_last_claim(facts.type))
    facts = replace(facts, queued=read_queue(facts), used=_used(facts))
    return replace(facts, flow=read_flow(facts.type, facts.now)) if estimates else facts


def _used(facts: Facts) -> dict[UUID, Counter[str]]:
    """Return what the attempts of each claiming daemon take, if the Type takes resources."""
    used: dict[UUID, Counter[str]] = {each["uuid"]: Counter() for each in facts.claiming}
    if facts.type is None or not facts.type.resources:
        return {}
    tasks = Task.objects.using(settings.DATABASE).filter(
        daemon__uuid__in=used, type__resources__isnull=False
    )
    counts = tasks.order_by().values_list("daemon__uuid", "type__resources").annotate(Count("pk"))
    for daemon, resources, count in counts:
        for name, amount in resources.items():
            used[daemon][name] += count * amount
    return used


def _with_controls(facts: Facts) -> Facts:
    """Add the gates, the limits and the downstream that delay starts to the facts."""
    shut = gates(now=facts.now)
    of_lane = Q(collection__isnull=True) | Q(collection=facts.lane)
    rows = limits_with_counts(Q(type=facts.type) & of_lane, facts.lane)
    return replace(
        facts,
        gates=[gate for gate in shut if covers(gate, facts)],
        limits=rows,
        full=full_limits(rows, facts.lane, facts.now),
        downstream=_find_downstream(facts.type),
    )


def _find_downstream(type: Type | None) -> Downstream | None:
    """Return the downstream of a Type if it currently restricts calls, otherwise None."""
    if type is None or not type.downstream:
        return None
    rows = Downstream.objects.using(settings.DATABASE).filter(name=type.downstream)
    return rows.exclude(state="closed").first()


def _find_paused_schedule(type: Type, now: datetime) -> Schedule | None:
    """Return the schedule with the same name as the Type if that schedule is paused, else None."""
    rows = Schedule.objects.using(settings.DATABASE)
    row = rows.filter(type=type, identifier=type.identifier, retired__isnull=True).first()
    return row if row is not None and row.is_paused(now) else None


def covers(row: Any, facts: Facts) -> bool:
    """Return True if a Gate or a Limit covers the Type or the lane that the facts are about."""
    if row.type_id is None:
        return True
    own = None if facts.type is None else facts.type.pk
    return row.type_id == own and row.collection in (None, facts.lane)


def _newest_records() -> dict[str, Any]:
    """Return subqueries, by name, that read the newest log records together with an Instance."""
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=OuterRef("pk"))
    records = records.order_by("-pk")
    named = {name: name for name in _RECORD_FIELDS}
    return {
        name: Subquery(rows.values(record=JSONObject(**named))[:1])
        for name, rows in (
            ("last", records.filter(kind__in=Event.values)),
            ("command", records.filter(kind=Kind.ASK)),
            ("pause", records.filter(kind=Event.PAUSE)),
            ("newest", records),
        )
    }


def _parse_record(found: Any) -> Document | None:
    """Return a log record in which the time is a datetime; in the database's JSON it is text."""
    if found is None:
        return None
    time = datetime.fromisoformat(found["time"])
    return found | {"time": time if time.tzinfo else time.replace(tzinfo=UTC)}


def _cancel_grace(type: Type) -> timedelta:
    """Return how long an attempt may continue after a cancel command (setting CANCEL_GRACE)."""
    declared = registry.get(type.identifier) if type.identifier in registry else None
    grace = None if declared is None else declared.cancel_grace
    return as_timedelta(settings.CANCEL_GRACE if grace is None else grace)


def _find_upstream(task: Task | None) -> list[Document]:
    """Return up to MOST_NODES nodes that a Task waits for, with Instance uuids and states."""
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


def _find_last_claim(type: Type | None) -> Document | None:
    """Return the claim record of a Type's latest ended Instance; the record names the daemon."""
    ended = Instance.objects.using(settings.DATABASE).filter(type=type, finished__isnull=False)
    newest = ended.order_by("-finished").values("pk")[:1]
    records = LogRecord.objects.using(settings.DATABASE).filter(instance__in=Subquery(newest))
    found: Any = records.filter(kind=Event.CLAIM).order_by("-pk").values("who", "time").first()
    return found


def _find_removal(uuid: UUID) -> Document | None:
    """Return the log record about the removal of this Instance, or None if it is too old."""
    records = LogRecord.objects.using(settings.DATABASE).about_any().filter(kind=Kind.REMOVED)
    recent = records.order_by("-pk").values("subject", "time", "who", "message")
    found: Any = (row for row in recent[:MOST_REMOVALS] if str(uuid) in row["message"])
    return next(found, None)


# The limits that allow no further start, in one query for several Types.


def limits_with_counts(selected: Q, collection: str | None = None) -> list[Any]:
    """Return the selected Limits, each with counts of claimed Tasks as attributes.

    ``held_in_all`` counts the claimed Tasks of the Limit's Type, ``held_in_own`` those in the
    Limit's own lane, and ``held_in_lane`` those in the lane ``collection``.
    """
    # Filtering by the few daemons lets the database use the index on claimed Tasks.
    daemons = Daemon.objects.using(settings.DATABASE).values("pk")
    held = Task.objects.using(settings.DATABASE).filter(daemon__in=daemons, type=OuterRef("type"))
    held = held.order_by()
    found = Limit.objects.using(settings.DATABASE).filter(selected).select_related("type")
    return list(
        found.annotate(
            held_in_all=RowCount(held.values("pk")),
            held_in_own=RowCount(held.filter(collection=OuterRef("collection")).values("pk")),
            held_in_lane=RowCount(held.filter(collection=collection or "").values("pk")),
        )
    )


def full_limits(rows: Iterable[Any], collection: str | None, now: datetime) -> list[FullLimit]:
    """Return the limits that block a lane, or without a ``collection`` those that block all lanes.

    ``rows`` are the Limits of the lane's Type, as :func:`limits_with_counts` returns them.
    """
    applying = [row for row in rows if row.collection in (None, collection)]
    found = [full for row in applying if (full := check_full(row, now)) is not None]
    if collection is None or any(_is_for_one_lane(row) for row in applying):
        return found
    return found + [
        FullLimit(limit=row, kind="lane", held=row.held_in_lane)
        for row in applying
        if row.collection is None
        and row.max_running_per_collection is not None
        and row.held_in_lane >= row.max_running_per_collection
    ]


def check_full(row: Any, now: datetime) -> FullLimit | None:
    """Return a FullLimit if a Limit currently allows no start for its target, otherwise None."""
    held = row.held_in_all if row.collection is None else row.held_in_own
    bucket = Bucket.of(row, row.type.identifier, now, held=held)
    if bucket.is_full:
        return FullLimit(limit=row, kind="running", held=held)
    if not bucket.room:
        return FullLimit(
            limit=row, kind="rate", held=held, at=now + timedelta(seconds=bucket.seconds)
        )
    return None


def _is_for_one_lane(row: Limit) -> bool:
    """Return True for the ``max_running`` of one lane, which replaces the limit for each lane."""
    return row.collection is not None and row.max_running is not None
