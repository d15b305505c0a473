"""Gauges of what steers and carries the work: controls, daemons, schedules, the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from ...conf import settings
from ...models import Downstream, Schedule, Tailer
from ...reports import documents, health, overview
from ...store import get_store
from ...verbs.control.gates import gates
from ...verbs.control.limits import limits
from .scrape import Scrape, gauge

# A transaction that has been open for this long, in seconds, is reported.
LONG = 60.0


def controls(scrape: Scrape) -> Iterator[Metric]:
    """Yield the shut gates, the limits of Types, and the state of each downstream."""
    now = overview.now()
    shut = gauge(
        "gate_shut_seconds",
        "How long a gate has been shut: that of everything, of a Type, or of a lane.",
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
    limit = gauge("limit", "What a Type may have: running at once, starts a second.", "type", "of")
    for row in limits():
        if row.collection is None and row.max_running is not None:
            limit.add_metric([row.type.identifier, "running"], row.max_running)
        if row.collection is None and row.per_second is not None:
            limit.add_metric([row.type.identifier, "rate"], row.per_second)
    state = gauge("downstream_state", "1 for the state that it is in.", "downstream", "state")
    rate = gauge("downstream_rate", "Calls a second, while it is throttled.", "downstream")
    for each in Downstream.objects.using(settings.DATABASE):
        for name, _ in Downstream._meta.get_field("state").flatchoices:
            state.add_metric([each.name, name], float(each.state == name))
        if each.per_second:
            rate.add_metric([each.name], each.per_second)
    yield from (shut, limit, state, rate)


def daemons(scrape: Scrape) -> Iterator[Metric]:
    """Yield the daemons by condition and mode, and the workers of those that live."""
    now = overview.now()
    told = [documents.daemon(row, now) for row in overview.daemons()]
    found = gauge("daemons", "Daemons that have a row.", "condition", "mode")
    counts = Counter((each["condition"], each["mode"]) for each in told)
    counts[overview.ALIVE, "running"] += 0
    for labels, count in sorted(counts.items()):
        found.add_metric([*labels], count)
    workers = gauge("workers", "Workers of the daemons that live.", "state")
    living = [each for each in told if each["condition"] != overview.LOST]
    states = Counter(_state(worker) for each in living for worker in each["workers"])
    for state in ("busy", "idle", "paused"):
        workers.add_metric([state], states[state])
    yield from (found, workers)


def _state(worker: documents.Document) -> str:
    if worker.get("paused"):
        return "paused"
    return "busy" if worker["instance"] else "idle"


def schedules(scrape: Scrape) -> Iterator[Metric]:
    """Yield how late the next slot of each schedule is."""
    now = overview.now()
    late = gauge("schedule_late_seconds", "How long the next slot has been due.", "schedule")
    rows = Schedule.objects.using(settings.DATABASE).order_by("identifier")
    for name, due in rows.values_list("identifier", "due_at"):
        late.add_metric([name], 0.0 if due is None else max(0.0, (now - due).total_seconds()))
    yield late


def tailers(scrape: Scrape) -> Iterator[Metric]:
    """Yield what came out of each source, what is left in it, and when it was read last."""
    now = overview.now()
    age = gauge("tailer_read_age_seconds", "How long ago a source was looked at.", "tailer")
    behind = gauge("tailer_behind", "Records that the last look has left.", "tailer")
    counts = {
        "records": CounterMetricFamily(
            "atp_tailer_records", "Records of a source that were settled.", labels=["tailer"]
        ),
        "enqueued": CounterMetricFamily(
            "atp_tailer_instances", "Instances that the records made.", labels=["tailer"]
        ),
        "rejected": CounterMetricFamily(
            "atp_tailer_rejected", "Records that were put aside.", labels=["tailer"]
        ),
    }
    counts |= {
        "gaps": CounterMetricFamily(
            "atp_tailer_gaps",
            "Times that records were lost, also where their number is unknown.",
            labels=["tailer"],
        ),
        "lost": CounterMetricFamily(
            "atp_tailer_lost",
            "Records that a source removed before they were read.",
            labels=["tailer"],
        ),
        "passed_over": CounterMetricFamily(
            "atp_tailer_passed_over",
            "Records that cannot be read, and that the cursor has passed over.",
            labels=["tailer"],
        ),
    }
    skipped = gauge("tailer_skipped", "What is in a source and cannot be read.", "tailer")
    for row in Tailer.objects.using(settings.DATABASE):
        age.add_metric([row.identifier], max(0.0, (now - row.read_at).total_seconds()))
        skipped.add_metric([row.identifier], row.skipped)
        if row.behind is not None:
            behind.add_metric([row.identifier], row.behind)
        for name, metric in counts.items():
            metric.add_metric([row.identifier], getattr(row, name))
    yield from (age, behind, skipped, *counts.values())


def database(scrape: Scrape) -> Iterator[Metric]:
    """Yield how long the oldest transaction is open, among those open for a minute or more."""
    now, found = get_store().open_transactions(LONG)
    ages = [(now - each.since).total_seconds() for each in found if each.since is not None]
    oldest = gauge(
        "oldest_transaction_seconds", "How long a transaction of others is open; 0 below a minute."
    )
    oldest.add_metric([], max(ages, default=0.0))
    yield oldest


def problems(scrape: Scrape) -> Iterator[Metric]:
    """Yield the number of problems that ``atp status`` tells."""
    found = gauge("problems", "Problems of the queue, as in its health.")
    found.add_metric([], len(health.problems(overview.daemons(), overview.now())))
    yield found
