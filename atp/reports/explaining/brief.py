"""The main cause for each row of a list, in a few words.

It takes five queries a page; one more if lanes are limited, and one if some wait for a retry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Q

from ...conf import settings
from ...models import Daemon, Downstream, Instance, LogRecord, Task
from ...protection.values import State as Protection
from ...states import TERMINAL, Event
from ...verbs.control.gates import gates
from .. import documents, overview
from ..deploys import releases
from . import limited, sentences
from .causes.table import judged
from .facts import Facts
from .gathering import covers
from .values import Reason

# The words of a cause in a list, by its code. Other causes need none: the state says enough.
SHORT = {
    "cancel-asked": "asked to be cancelled",
    "holder-lost": "its daemon is lost",
    "holder-late": "its daemon is late",
    "gate": "held by a gate",
    "blocked": "waits for nodes",
    "in-line": "waits in line",
    "not-due": "not due yet",
    "retry": "waits for a retry",
    "deferred": "deferred",
    "misfit": "fits no daemon yet",
    "max-running": "a limit is full",
    "max-running-per-collection": "its collection is full",
    "rate": "a rate is used up",
    "downstream": "its downstream is not healthy",
    "unserved": "no daemon serves it",
    "quiet": "its daemons are quiet",
    "workers-busy": "all workers are busy",
    "locked": "locked in the database",
    "alone": "runs alone",
    "ready": "its turn",
}


@dataclass(frozen=True)
class Brief:
    """A cause in a few ``words``, with its ``code`` and its ``sentence``."""

    code: str
    words: str
    sentence: str


def briefs(
    instances: Iterable[Instance], now: datetime, *, errors: bool = True, daemons: bool = True
) -> dict[int, Brief]:
    """Return the first cause for each live Instance among these, by primary key.

    Running Instances have none, unless they are asked to end. ``errors`` and ``daemons`` say
    whether the reader may see error lines, and names of daemons.
    """
    live = {row.pk: row for row in instances if row.state not in TERMINAL}
    if not live:
        return {}
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon").in_bulk(list(live))
    told = releases.told(overview.daemons(), now)
    shut = gates(now=now)
    limits = _limits(live.values())
    held = _held_in_lanes(limits)
    sick = Downstream.objects.using(settings.DATABASE).exclude(state=Protection.CLOSED)
    downstreams = {row.name: row for row in sick}
    last = _last_events(task for task in tasks.values() if task.due_at > now)
    found = {}
    for key, task in tasks.items():
        instance = live[key]
        facts = Facts(
            now=now,
            type=instance.type,
            instance=instance,
            task=task,
            daemons=told,
            last=last.get(key),
            downstream=downstreams.get(instance.type.downstream),
        )
        own = [row for row in limits if covers(row, facts)]
        for row in own:
            row.held_in_lane = held[row.type_id, task.collection]
        facts = replace(
            facts,
            gates=[gate for gate in shut if covers(gate, facts)],
            full=limited.full(own, task.collection, now),
        )
        facts = facts.redacted(errors=errors, daemons=daemons)
        brief = _brief(judged(facts), facts)
        if brief is not None:
            found[key] = brief
    return found


def _brief(reasons: Iterable[Reason], facts: Facts) -> Brief | None:
    for reason in reasons:
        if reason.code in SHORT:
            return Brief(reason.code, SHORT[reason.code], reason.sentence)
    return Brief("ready", SHORT["ready"], sentences.READY) if facts.is_waiting else None


def _last_events(tasks: Iterable[Task]) -> dict[int, documents.Document]:
    """Return the last retry or deferral of these Tasks' Instances: it set their due time."""
    begun = [task.pk for task in tasks if task.attempt]
    if not begun:
        return {}
    records = LogRecord.objects.using(settings.DATABASE)
    own = records.filter(instance__in=begun, kind__in=Event.values).order_by()
    last = own.values("instance").annotate(last=Max("pk")).values("last")
    rows = records.filter(pk__in=last)
    return {row.instance_id: documents.log_record(row) for row in rows if row.instance_id}


def _limits(instances: Iterable[Instance]) -> list[Any]:
    types = {row.type_id for row in instances}
    lanes = {row.collection for row in instances}
    of_lane = Q(collection__isnull=True) | Q(collection__in=lanes)
    return limited.rows(Q(type__in=types) & of_lane)


def _held_in_lanes(limits: Iterable[Any]) -> Counter[tuple[int, str]]:
    """Return the number of claimed Tasks of each lane, for Types that limit each lane."""
    types = {row.type_id for row in limits if row.max_running_per_collection is not None}
    if not types:
        return Counter()
    daemons = Daemon.objects.using(settings.DATABASE).values("pk")
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__in=daemons, type__in=types)
    counted = tasks.order_by().values_list("type", "collection").annotate(Count("pk"))
    return Counter({(type, collection): count for type, collection, count in counted})
