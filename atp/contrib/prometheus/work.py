"""Gauges of the work: what waits, what is claimed, what failed, and how many workers it needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import ceil, inf
from typing import Any

from django.db.models import Count, Min, Q, Value
from prometheus_client import Metric

from ...conf import settings
from ...models import Downstream, Gate, Instance, Task, Type
from ...protection.values import State as Protection
from ...reports import overview
from ...states import CLAIMED, DEAD_LETTER, State
from ...verbs.control.gates import gates
from ...verbs.control.limits import limits
from .scrape import Scrape, gauge
from .scrape import types as registered

# In seconds.
MINUTE = 60.0


def tasks(scrape: Scrape) -> Iterator[Metric]:
    """Yield what waits and what is claimed, by Type; how old that is, and how much work."""
    now = overview.now()
    shut = gates(now=now)
    found, taken = _waiting(shut, now), _claimed()
    waiting = gauge("tasks_waiting", "Tasks that wait: due now, or not.", "type", "due")
    held = gauge("tasks_held", "Due Tasks that a shut gate holds.", "type")
    claimed = gauge("tasks_claimed", "Tasks that a daemon holds.", "type", "state")
    oldest = gauge(
        "oldest_due_age_seconds",
        "How long the oldest Task has been due that no gate holds; 0 if there is none.",
        "type",
    )
    types, todo = registered(), {}
    for key, type in types.items():
        name = type.identifier
        row = found.get(key, {"all": 0, "later": 0, "held": 0, "first": None})
        due, first = row["all"] - row["later"], row["first"]
        is_held = any(gate.collection is None and gate.type_id in (None, key) for gate in shut)
        count = due if is_held else row["held"]
        free = due - count
        waiting.add_metric([name, "yes"], due)
        waiting.add_metric([name, "no"], row["later"])
        held.add_metric([name], count)
        oldest.add_metric([name], (now - first).total_seconds() if free and first else 0.0)
        todo[key] = free + taken[key, State.SCHEDULED]
        for state in sorted(CLAIMED):
            claimed.add_metric([name, state], taken[key, state])
    yield from (waiting, held, oldest, claimed, _info(types.values()))
    if scrape.runs is not None:
        yield from _scaling(types, todo, taken, scrape.runs)


def _info(types: Iterable[Type]) -> Metric:
    found = gauge("type_info", "1; who looks after a Type, and how.", "type", "owner", "runbook")
    for type in types:
        found.add_metric([type.identifier, type.owner, type.runbook], 1.0)
    return found


def _scaling(
    types: Mapping[int, Type],
    todo: Mapping[int, int],
    taken: Counter[tuple[int, str]],
    runs: Mapping[str, float],
) -> Iterator[Metric]:
    """Yield how much work is to do, and how many workers it needs.

    ``todo`` are the Tasks that may start: due ones, and those that a daemon has claimed ahead.
    """
    work = gauge(
        "due_work_seconds",
        "The Tasks that are due, not held and not begun, times their mean run time.",
        "type",
    )
    needed = gauge(
        "workers_needed",
        "Workers that would do within a minute what may start, and those that work.",
        "type",
    )
    limits_of = {row.type_id: row for row in limits() if row.collection is None}
    downstreams = {row.name: row for row in Downstream.objects.using(settings.DATABASE)}
    for key, type in types.items():
        run, limit = runs.get(type.identifier), limits_of.get(key)
        if run is not None:
            work.add_metric([type.identifier], run * todo[key])
        rate = None if limit is None else limit.per_second
        startable = min(
            todo[key] if rate is None else min(todo[key], ceil(rate * MINUTE)),
            _allowed(downstreams.get(type.downstream)),
        )
        working = taken[key, State.RUNNING] + taken[key, State.PAUSED]
        most = None if limit is None else limit.max_running
        needed.add_metric([type.identifier], _needed(startable, run, working, most))
    yield from (work, needed)


def _allowed(downstream: Downstream | None) -> float:
    """Return how many calls a downstream allows within a minute."""
    if downstream is None or downstream.state == Protection.CLOSED:
        return inf
    if downstream.state == Protection.THROTTLED:
        return ceil(downstream.per_second * MINUTE)
    return 1 if downstream.state == Protection.HALF_OPEN else 0


def _waiting(shut: Iterable[Gate], now: datetime) -> dict[int, Any]:
    """Count the Tasks that wait, by the key of their Type, in one pass.

    ``held`` are due ones that gates of lanes hold, ``first`` is the due time of the first other.
    """
    later, lanes, names = Q(due_at__gt=now), Q(), defaultdict(list)
    for gate in shut:
        if gate.collection is not None:
            names[gate.type_id].append(gate.collection)
    for type_id, collections in names.items():
        lanes |= Q(type_id=type_id, collection__in=collections)
    figures: dict[str, Any] = {
        "all": Count("*"),
        "later": Count("pk", filter=later),
        "held": Count("pk", filter=lanes & ~later) if lanes else Value(0),
        "first": Min("due_at", filter=~lanes) if lanes else Min("due_at"),
    }
    rows: Any = Task.objects.using(settings.DATABASE).waiting().values("type_id")
    return {row["type_id"]: row for row in rows.annotate(**figures).order_by()}


def _needed(startable: float, run: float | None, working: int, most: int | None) -> int:
    """Return how many workers would do so many Tasks within a minute, beside those that work.

    ``run`` is the mean run time in seconds, None if it is not known. More workers than Tasks, or
    than may be running, would not help.
    """
    found = working + int(min(startable, ceil(startable * (run or 0) / MINUTE) or 1))
    return found if most is None else min(found, most)


def _claimed() -> Counter[tuple[int, str]]:
    """Count the Tasks that daemons hold, by Type and state."""
    rows = Task.objects.using(settings.DATABASE).claimed().filter(instance__state__in=CLAIMED)
    counted = rows.values_list("type_id", "instance__state").annotate(Count("pk"))
    return Counter({(type, state): count for type, state, count in counted.order_by()})


def dead_letters(scrape: Scrape) -> Iterator[Metric]:
    """Yield the number of dead letters, by Type and reason."""
    found = gauge("dead_letters", "FAILED Instances that a redrive may mend.", "type", "reason")
    dead = Instance.objects.using(settings.DATABASE).selected(state=State.FAILED)
    rows = dead.filter(reason__in=DEAD_LETTER).values_list("type_id", "reason")
    counts = {(type, reason): n for type, reason, n in rows.annotate(Count("pk")).order_by()}
    for key, type in registered().items():
        for reason in sorted(DEAD_LETTER):
            found.add_metric([type.identifier, reason], counts.get((key, reason), 0))
    yield found
