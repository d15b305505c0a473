"""Gathering: the facts about an Instance, a Type or a lane, in ten queries at most.

On PostgreSQL the clock is one of them, and returns open transactions and their locks too. The
others read: the Instance with its Task, holder and log; the daemons, and what fits none of them;
the gates; the limits with their claimed Tasks; the queue around it; the speed of its Type. A fact
that would not change the answer is not read: the query for blocking nodes, or for the daemon that
last served it, replaces others.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import JSONObject

from ...conf import settings
from ...models import Downstream, Edge, Instance, LogRecord, Schedule, Task, Type
from ...rows.graph import SATISFIED
from ...rows.log import Kind, signature_in
from ...states import Event
from ...store import get_store
from ...verbs.control.gates import gates
from ...verbs.registry import registry
from ...words.hints import seconds
from .. import overview
from ..deploys import misfits, releases
from ..documents import Document
from . import around, limited
from .facts import Facts

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
        told, is_elsewhere = misfits.why(instance, rows, now)
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
        misfit=" ".join(misfits.problems(rows, now, type.identifier)),
        schedule=_paused_schedule(type, now),
    )
    return _of_waiting(facts, estimates)


def _of_waiting(facts: Facts, estimates: bool) -> Facts:
    facts = _with_control(facts)
    if not facts.serving:
        return replace(facts, served_last=_served_last(facts.type))
    facts = replace(facts, queued=around.queued(facts))
    return replace(facts, flow=around.flow(facts.type, facts.now)) if estimates else facts


def _of_claimed(facts: Facts) -> Facts:
    return replace(facts, flow=around.flow(facts.type, facts.now))


def _with_control(facts: Facts) -> Facts:
    shut = gates(now=facts.now)
    of_lane = Q(collection__isnull=True) | Q(collection=facts.lane)
    rows = limited.rows(Q(type=facts.type) & of_lane, facts.lane)
    return replace(
        facts,
        gates=[gate for gate in shut if covers(gate, facts)],
        limits=rows,
        full=limited.full(rows, facts.lane, facts.now),
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
