"""Metrics for Prometheus, by ``path("metrics", atp.contrib.prometheus.metrics)`` in urls.py.

The metrics are read from the queue's database at each scrape, so any web process can answer.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, inf
from threading import Lock
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import Error, OperationalError, connections, transaction
from django.db.models import BigIntegerField, Count, Max, Min, Q, QuerySet, Sum, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector as Base

from ..conf import settings
from ..downstreams.protection import State as Protection
from ..models import (
    ALL_TYPES,
    BUCKETS,
    COUNTS,
    HISTOGRAMS,
    Downstream,
    Gate,
    Instance,
    Schedule,
    Statistic,
    Tailer,
    Task,
    Type,
    failure_column,
)
from ..operations.gates import gates, limits
from ..reports import documents, health, overview
from ..states import CLAIMED, DEAD_LETTER, Reason, State
from ..store import get_store
from ..web import permissions

__all__ = ["CONTENT_TYPE", "Collector", "exposition", "metrics"]

logger = logging.getLogger("atp.metrics")

CONTENT_TYPE: str = CONTENT_TYPE_LATEST
# A statement can take LONGEST seconds (only PostgreSQL enforces this), and no statement begins
# after ALL seconds, because a scraper gives up after ten.
LONGEST, ALL = 2.0, 5.0
# A transaction is reported if it has been open for this long, in seconds.
LONG = 60.0
# In seconds.
MINUTE = 60.0


@dataclass
class Scrape:
    """The values that one scrape's functions share.

    ``runs`` maps identifiers of Types to mean run times in seconds, or is None before
    ``run_times()`` has read them.
    """

    runs: dict[str, float] | None = None


def seen_types() -> dict[int, Type]:
    """Return all rows of Type by primary key, in the order of their identifiers."""
    return {row.pk: row for row in Type.objects.using(settings.DATABASE).order_by("identifier")}


def gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    """Return a gauge without samples. ``name`` is the metric's name without the prefix ``atp_``."""
    return GaugeMetricFamily(f"atp_{name}", documentation, labels=labels)


# Counters and histograms: the daemons' counts since the queue began.
#
# These metrics are sums over the rows of Statistic, which outlive Instances, logs and Types. So the
# metrics never decrease, whichever process answers.

_ATTEMPTS = ("started", "retried", "deferred", "lost")
_HELP = {
    "wait": "The time from when an attempt is due to its start.",
    "run": "The time from the start of an attempt to its end, if the handler ended.",
}
# The events that end a run and are counted with its run time.
RUNS = (
    "finished",
    "retried",
    "deferred",
    failure_column(Reason.ERROR),
    failure_column(Reason.FATAL),
)
HOUR = timedelta(hours=1)
# Sums of the columns of Statistic, and of the buckets of both histograms, by Type.
_Sums = dict[str, dict[str, int]]


def counted(scrape: Scrape) -> Iterator[Metric]:
    """Yield counters of attempts and ends, and histograms of waiting and run times, by Type."""
    hour = _start_of_hour()
    lately, before = _read_sums(_rows().filter(start__gte=hour)), _past.sums(hour)
    found = {
        type: _add(each[type] for each in (before, lately) if type in each)
        for type in before.keys() | lately.keys()
    }
    yield from _event_metrics(found)
    yield from _duration_metrics(found)


def run_times(scrape: Scrape) -> Iterator[Metric]:
    """Read the mean run times of Types into ``scrape``, and yield no metrics.

    Each is the mean of the attempts in the last hour, or of all attempts if none ended in that
    hour. A Type without ended attempts has no mean run time.
    """
    hour = _start_of_hour()
    lately = _read_sums(_rows().filter(start__gte=overview.now() - HOUR), histograms=False)
    found = {}
    for sums in (_past.sums(hour), lately):
        for type, each in sums.items():
            count = sum(each[name] for name in RUNS)
            if count:
                found[type] = each["wall_us"] / 1e6 / count
    scrape.runs = found
    yield from ()


def _start_of_hour() -> datetime:
    return overview.now().replace(minute=0, second=0, microsecond=0)


def _add(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _event_metrics(found: _Sums) -> Iterator[Metric]:
    attempts = CounterMetricFamily("atp_attempts", "Attempts by outcome.", labels=("type", "event"))
    ended = CounterMetricFamily(
        "atp_instances_ended", "Instances that have ended.", labels=("type", "state", "reason")
    )
    # A Type begins with 0, so that Prometheus sees its first events as an increase.
    names = Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
    for type in sorted({*found, *names}):
        row = found.get(type, {})
        for name in _ATTEMPTS:
            attempts.add_metric([type, name], row.get(name, 0))
        ended.add_metric([type, State.FINISHED.value, ""], row.get("finished", 0))
        for reason in Reason:
            count = row.get(failure_column(reason), 0)
            ended.add_metric([type, State.FAILED.value, reason.value], count)
    yield from (attempts, ended)


def _duration_metrics(found: _Sums) -> Iterator[Metric]:
    for name in HISTOGRAMS:
        family = HistogramMetricFamily(f"atp_{name}_seconds", _HELP[name], labels=("type",))
        for type, sums in sorted(found.items()):
            numbers = [sums[f"{name}_{n}"] for n in range(BUCKETS)]
            total = sums["wall_us"] / 1e6 if name == "run" else None
            family.add_metric([type], list(_cumulate(numbers)), sum_value=total)
        yield family


def _cumulate(numbers: list[int]) -> Iterator[tuple[str, float]]:
    """Yield each bucket's upper bound in seconds, and the count of all times up to that bound."""
    count = 0
    for place, number in enumerate(numbers):
        count += number
        yield ("+Inf" if place == BUCKETS - 1 else f"{2**place / 1000}"), count


class _Past:
    """A cache in this process of the sums over all Statistic rows before the current hour.

    The sums change when an hour ends, when older rows are folded, and when events of a lost daemon
    are counted late. Each of these also changes the number of rows or the highest key, so the cache
    notices.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key: tuple[object, ...] = ()
        self._found: _Sums = {}

    def sums(self, until: datetime) -> _Sums:
        """Return the sums over the Statistic rows that begin before ``until``."""
        rows = _rows().filter(start__lt=until)
        state = rows.aggregate(count=Count("*"), last=Max("pk"))
        key = (settings.DATABASE, until, state["count"], state["last"])
        with self._lock:
            if key == self._key:
                return self._found
        # Read without the lock, so that a slow scrape does not keep others waiting.
        found = _read_sums(rows)
        with self._lock:
            self._key, self._found = key, found
        return found


_past = _Past()


def _read_sums(rows: QuerySet[Statistic], *, histograms: bool = True) -> _Sums:
    columns: dict[str, Any] = {f"sum_{name}": Sum(name) for name in COUNTS}
    for name in HISTOGRAMS if histograms else ():
        for place in range(BUCKETS):
            number = Cast(KeyTextTransform(place, name), BigIntegerField())
            columns[f"{name}_{place}"] = Sum(number, default=0)
    found: Any = rows.values("type").annotate(**columns).order_by()
    return {
        row["type"]: {k.removeprefix("sum_"): v for k, v in row.items() if k != "type"}
        for row in found
    }


def _rows() -> QuerySet[Statistic]:
    return Statistic.objects.using(settings.DATABASE).exclude(type=ALL_TYPES).order_by()


# Gauges for gates, limits, daemons, schedules, tailers and the database.


def control_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield gauges for the shut gates, the limits of Types, and the state of each downstream."""
    now = overview.now()
    shut = gauge(
        "gate_shut_seconds",
        "How long a gate has been shut: for everything, for a Type, or for a lane.",
        "scope",
        "type",
        "collection",
        "mode",
        "ends",
    )
    for gate in gates(now=now):
        type = "" if gate.type is None else gate.type.identifier
        scope = "type" if type else "everything"
        where = [scope if gate.collection is None else "lane", type, gate.collection or ""]
        ends = "no" if gate.until is None else "yes"
        shut.add_metric([*where, gate.mode, ends], (now - gate.since).total_seconds())
    limit = gauge(
        "limit", "The limits of a Type: Tasks running at once, and starts per second.", "type", "of"
    )
    for row in limits():
        if row.collection is None and row.max_running is not None:
            limit.add_metric([row.type.identifier, "running"], row.max_running)
        if row.collection is None and row.per_second is not None:
            limit.add_metric([row.type.identifier, "rate"], row.per_second)
    state = gauge(
        "downstream_state",
        "1 for the current state of a downstream, otherwise 0.",
        "downstream",
        "state",
    )
    rate = gauge(
        "downstream_rate", "Calls per second to a downstream while it is throttled.", "downstream"
    )
    for each in Downstream.objects.using(settings.DATABASE):
        for name, _ in Downstream._meta.get_field("state").flatchoices:
            state.add_metric([each.name, name], float(each.state == name))
        if each.per_second:
            rate.add_metric([each.name], each.per_second)
    yield from (shut, limit, state, rate)


def daemon_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield gauges that count daemons by condition and mode, and living daemons' workers."""
    now = overview.now()
    daemons = [documents.daemon(row, now) for row in overview.daemons()]
    found = gauge("daemons", "Daemons that have a row in the database.", "condition", "mode")
    counts = Counter((each["condition"], each["mode"]) for each in daemons)
    counts[overview.ALIVE, "running"] += 0
    for labels, count in sorted(counts.items()):
        found.add_metric([*labels], count)
    workers = gauge("workers", "Workers of the living daemons.", "state")
    living = [each for each in daemons if each["condition"] != overview.LOST]
    states = Counter(_worker_state(worker) for each in living for worker in each["workers"])
    for state in ("busy", "idle", "paused"):
        workers.add_metric([state], states[state])
    yield from (found, workers)


def _worker_state(worker: documents.Document) -> str:
    if worker.get("paused"):
        return "paused"
    return "busy" if worker["instance"] else "idle"


def schedule_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield a gauge for how late the next slot of each schedule is."""
    now = overview.now()
    late = gauge(
        "schedule_late_seconds", "How long a schedule's next slot has been due.", "schedule"
    )
    rows = Schedule.objects.using(settings.DATABASE).order_by("identifier")
    for name, due in rows.values_list("identifier", "due_at"):
        late.add_metric([name], 0.0 if due is None else max(0.0, (now - due).total_seconds()))
    yield late


def tailer_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield metrics for each tailer: records read and left, and when its source was last read."""
    now = overview.now()
    age = gauge("tailer_read_age_seconds", "How long ago a tailer's source was read.", "tailer")
    behind = gauge("tailer_behind", "Records that the last read left unread.", "tailer")
    counts = {
        "records": CounterMetricFamily(
            "atp_tailer_records",
            "Records of a source whose position has been committed.",
            labels=["tailer"],
        ),
        "enqueued": CounterMetricFamily(
            "atp_tailer_instances",
            "Instances that a tailer enqueued from records.",
            labels=["tailer"],
        ),
        "rejected": CounterMetricFamily(
            "atp_tailer_rejected", "Records that a tailer rejected.", labels=["tailer"]
        ),
    }
    counts |= {
        "gaps": CounterMetricFamily(
            "atp_tailer_gaps",
            "How often a source had removed records before they were read.",
            labels=["tailer"],
        ),
        "lost": CounterMetricFamily(
            "atp_tailer_lost",
            "Records that a source removed before they were read.",
            labels=["tailer"],
        ),
        "passed_over": CounterMetricFamily(
            "atp_tailer_passed_over",
            "Unreadable records that the tailer's cursor has passed over.",
            labels=["tailer"],
        ),
    }
    skipped = gauge("tailer_skipped", "Entries in a source that the tailer cannot read.", "tailer")
    for row in Tailer.objects.using(settings.DATABASE):
        age.add_metric([row.identifier], max(0.0, (now - row.read_at).total_seconds()))
        skipped.add_metric([row.identifier], row.skipped)
        if row.behind is not None:
            behind.add_metric([row.identifier], row.behind)
        for name, metric in counts.items():
            metric.add_metric([row.identifier], getattr(row, name))
    yield from (age, behind, skipped, *counts.values())


def database_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield a gauge for the age of the oldest open transaction, or 0 if it is below a minute."""
    now, found = get_store().open_transactions(LONG)
    ages = [(now - each.since).total_seconds() for each in found if each.since is not None]
    oldest = gauge(
        "oldest_transaction_seconds",
        "The age of the oldest open transaction, or 0 if below a minute.",
    )
    oldest.add_metric([], max(ages, default=0.0))
    yield oldest


def problem_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield a gauge with the number of problems that ``atp status`` reports."""
    found = gauge("problems", "The number of problems that atp status reports.")
    found.add_metric([], len(health.problems(overview.daemons(), overview.now())))
    yield found


# Gauges for the work: waiting and claimed Tasks, dead letters, and needed workers.


def task_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield gauges for the waiting and claimed Tasks of each Type, and the work due."""
    now = overview.now()
    shut = gates(now=now)
    found, claims = _count_waiting(shut, now), _count_claimed()
    waiting = gauge("tasks_waiting", "Waiting Tasks, due now or later.", "type", "due")
    held = gauge("tasks_held", "Due Tasks that a shut gate holds.", "type")
    claimed = gauge("tasks_claimed", "Tasks that a daemon holds.", "type", "state")
    oldest = gauge(
        "oldest_due_age_seconds",
        "How long the oldest due Task that no gate holds has been due, or 0 without one.",
        "type",
    )
    types, todo = seen_types(), {}
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
        todo[key] = free + claims[key, State.SCHEDULED]
        for state in sorted(CLAIMED):
            claimed.add_metric([name, state], claims[key, state])
    yield from (waiting, held, oldest, claimed, _type_info(types.values()))
    if scrape.runs is not None:
        yield from _scaling_gauges(types, todo, claims, scrape.runs)


def _type_info(types: Iterable[Type]) -> Metric:
    documentation = "Always 1, with the owner and the runbook of a Type as labels."
    found = gauge("type_info", documentation, "type", "owner", "runbook")
    for type in types:
        found.add_metric([type.identifier, type.owner, type.runbook], 1.0)
    return found


def _scaling_gauges(
    types: Mapping[int, Type],
    todo: Mapping[int, int],
    claims: Counter[tuple[int, str]],
    runs: Mapping[str, float],
) -> Iterator[Metric]:
    """Yield gauges for the due work and the number of workers that it needs, by Type.

    ``todo`` counts the Tasks that can start, by primary key of the Type. These are due Tasks that
    no gate holds, and Tasks that a daemon has claimed but not started. ``claims`` counts the
    claimed Tasks by primary key of the Type and state.
    """
    work = gauge(
        "due_work_seconds",
        "The number of due Tasks, neither held nor started, times their mean run time.",
        "type",
    )
    needed = gauge(
        "workers_needed",
        "The workers that could run all startable Tasks in a minute, plus busy workers.",
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
        working = claims[key, State.RUNNING] + claims[key, State.PAUSED]
        most = None if limit is None else limit.max_running
        needed.add_metric([type.identifier], _needed(startable, run, working, most))
    yield from (work, needed)


def _allowed(downstream: Downstream | None) -> float:
    """Return the maximum number of calls that a downstream allows within a minute."""
    if downstream is None or downstream.state == Protection.CLOSED:
        return inf
    if downstream.state == Protection.THROTTLED:
        return ceil(downstream.per_second * MINUTE)
    return 1 if downstream.state == Protection.HALF_OPEN else 0


def _count_waiting(shut: Iterable[Gate], now: datetime) -> dict[int, Any]:
    """Count the waiting Tasks of each Type, by the Type's primary key, in one query.

    In each result ``all`` counts the waiting Tasks, and ``later`` those that are not due yet.
    ``held`` counts the due Tasks that gates of lanes hold. ``first`` is the earliest due time of a
    Task that no such gate holds.
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
    """Return the number of workers that could run the startable Tasks within a minute.

    The number includes the ``working`` workers that are busy now. ``run`` is the mean run time in
    seconds, or None if unknown. The result is at most the number of Tasks and at most ``most``, the
    limit of Tasks that run at once, because more workers would not help.
    """
    found = working + int(min(startable, ceil(startable * (run or 0) / MINUTE) or 1))
    return found if most is None else min(found, most)


def _count_claimed() -> Counter[tuple[int, str]]:
    """Count the Tasks that daemons hold, by primary key of the Type and state."""
    rows = Task.objects.using(settings.DATABASE).claimed().filter(instance__state__in=CLAIMED)
    counted = rows.values_list("type_id", "instance__state").annotate(Count("pk"))
    return Counter({(type, state): count for type, state, count in counted.order_by()})


def dead_letter_gauges(scrape: Scrape) -> Iterator[Metric]:
    """Yield a gauge with the number of dead letters by Type and reason."""
    found = gauge("dead_letters", "FAILED Instances that a redrive might repair.", "type", "reason")
    dead = Instance.objects.using(settings.DATABASE).selected(state=State.FAILED)
    rows = dead.filter(reason__in=DEAD_LETTER).values_list("type_id", "reason")
    counts = {(type, reason): n for type, reason, n in rows.annotate(Count("pk")).order_by()}
    for key, type in seen_types().items():
        for reason in sorted(DEAD_LETTER):
            found.add_metric([type.identifier, reason], counts.get((key, reason), 0))
    yield found


# The collector, the text and the view.

# Each part reads metrics that belong together. If one fails, only its metrics are missing.
PARTS: tuple[Callable[[Scrape], Iterable[Metric]], ...] = (
    run_times,
    task_gauges,
    dead_letter_gauges,
    control_gauges,
    daemon_gauges,
    schedule_gauges,
    tailer_gauges,
    database_gauges,
    problem_gauges,
    counted,
)


class Collector(Base):
    """A collector for ``prometheus_client`` that yields all metrics of the queue.

    To export them with your own metrics, call ``REGISTRY.register(Collector())``. Metrics that the
    database does not return in time are omitted, and then ``atp_scrape_complete`` is 0.
    """

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, because otherwise registering the collector would read the database."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read all metrics from the database and yield them."""
        began, complete, scrape = time.perf_counter(), 1.0, Scrape()
        for part in PARTS:
            try:
                with _limit_statements(began + ALL):
                    found = list(part(scrape))
            except Error as error:
                logger.warning("%s was not collected: %s", part.__name__, str(error).strip())
                complete = 0.0
            else:
                yield from found
        yield GaugeMetricFamily(
            "atp_scrape_complete", "1 if all metrics of ATP could be read, otherwise 0.", complete
        )
        yield GaugeMetricFamily(
            "atp_scrape_duration_seconds",
            "How long reading the metrics took.",
            time.perf_counter() - began,
        )


@contextmanager
def _limit_statements(until: float) -> Iterator[None]:
    """Limit the time of each statement in the block, and raise OperationalError after ``until``.

    ``until`` is a time of ``time.perf_counter()``.
    """
    connection = connections[settings.DATABASE]

    def execute_in_time(execute: Callable[..., Any], *arguments: Any) -> Any:
        if time.perf_counter() > until:
            raise OperationalError("there is no time left")
        return execute(*arguments)

    if connection.vendor != "postgresql":
        with connection.execute_wrapper(execute_in_time):
            yield
        return
    with transaction.atomic(using=settings.DATABASE), connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting(%s), set_config(%s, %s, true)",
            ["statement_timeout", "statement_timeout", str(int(LONGEST * 1000))],
        )
        before, _ = cursor.fetchone()
        with connection.execute_wrapper(execute_in_time):
            yield
        # The transaction may belong to the caller, and continue.
        cursor.execute("SELECT set_config(%s, %s, true)", ["statement_timeout", before])


def exposition() -> bytes:
    """Return all metrics of the queue in Prometheus's text format, encoded as UTF-8."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    text: bytes = generate_latest(registry)
    return text


@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Respond to a scrape with all metrics of the queue.

    The client must send the token from the setting METRICS_TOKEN as ``Authorization: Bearer …``, or
    be logged in as a user with permission to view Types. Other clients get status 401.
    """
    if _has_token(request) or _may_view(request):
        return HttpResponse(exposition(), content_type=CONTENT_TYPE)
    refused = HttpResponse(
        "Metrics require the token, or a user who may view Types.\n", "text/plain", 401
    )
    refused["WWW-Authenticate"] = "Bearer"
    return refused


# The view checks access itself, because a scraper cannot log in.
metrics.login_required = False  # type: ignore[attr-defined]


def _has_token(request: HttpRequest) -> bool:
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    token = settings.METRICS_TOKEN
    is_bearer = scheme.lower() == "bearer"
    return bool(token) and is_bearer and constant_time_compare(sent.strip(), token)


def _may_view(request: HttpRequest) -> bool:
    user = getattr(request, "user", AnonymousUser())
    return permissions.holds(user, permissions.VIEW_TYPE)
