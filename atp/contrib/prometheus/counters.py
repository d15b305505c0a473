"""Counters and histograms: what daemons have counted since the queue began.

They are sums over the rows of Statistic, which outlive Instances, their log and their Types. So
they never fall, whichever process answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from threading import Lock
from typing import Any

from django.db.models import BigIntegerField, Count, Max, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from ...conf import settings
from ...models import Statistic
from ...reports import overview
from ...rows.statistic import BUCKETS, HISTOGRAMS, failed
from ...states import Reason, State
from .gauges import type_names

_ATTEMPTS = ("started", "retried", "deferred", "lost")
_HELP = {
    "wait": "From the due time of an attempt to its start.",
    "run": "From the start of an attempt to its end, if its handler ended it.",
}
# Sums of the buckets of both histograms, and of the run times in microseconds, by Type.
_Sums = dict[str, dict[str, int]]


def events() -> Iterator[Metric]:
    """Yield the number of attempts by event, and of ended Instances by state and reason."""
    names = [*_ATTEMPTS, "finished", *(failed(reason) for reason in Reason)]
    columns = {f"sum_{name}": Sum(name) for name in names}
    rows: Any = _rows().values("type").annotate(**columns)
    attempts = CounterMetricFamily(
        "atp_attempts", "Attempts, by what became of them.", labels=("type", "event")
    )
    ended = CounterMetricFamily(
        "atp_instances_ended", "Instances that have ended.", labels=("type", "state", "reason")
    )
    found = {row["type"]: row for row in rows}
    # A Type begins with 0: else its first events would not be an increase.
    for type in sorted({*found, *type_names().values()}):
        row = found.get(type, dict.fromkeys(columns, 0))
        for name in _ATTEMPTS:
            attempts.add_metric([type, name], row[f"sum_{name}"])
        ended.add_metric([type, State.FINISHED.value, ""], row["sum_finished"])
        for reason in Reason:
            count = row[f"sum_{failed(reason)}"]
            ended.add_metric([type, State.FAILED.value, reason.value], count)
    yield from (attempts, ended)


def durations() -> Iterator[Metric]:
    """Yield the histograms of waiting and of run times, by Type."""
    hour = overview.now().replace(minute=0, second=0, microsecond=0)
    lately = _sums(_rows().filter(start__gte=hour))
    before = _past.sums(hour)
    for name in HISTOGRAMS:
        found = HistogramMetricFamily(f"atp_{name}_seconds", _HELP[name], labels=("type",))
        for type in sorted(lately.keys() | before.keys()):
            parts = [each[type] for each in (before, lately) if type in each]
            numbers = [sum(part[f"{name}_{n}"] for part in parts) for n in range(BUCKETS)]
            total = sum(part["wall"] for part in parts) / 1e6 if name == "run" else None
            found.add_metric([type], list(_cumulated(numbers)), sum_value=total)
        yield found


def _cumulated(numbers: list[int]) -> Iterator[tuple[str, float]]:
    """Yield pairs of a bucket's upper bound, in seconds, and the count of all up to it."""
    count = 0
    for place, number in enumerate(numbers):
        count += number
        yield ("+Inf" if place == BUCKETS - 1 else f"{2**place / 1000}"), count


class _Past:
    """The sums of all rows that begin before the present hour, kept in this process.

    They change when an hour ends, when older rows are folded, and when events of a lost daemon
    are counted late: then the number of rows, or the highest key, is another.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key: tuple[object, ...] = ()
        self._found: _Sums = {}

    def sums(self, until: datetime) -> _Sums:
        """Return the sums of the rows that begin before a time."""
        rows = _rows().filter(start__lt=until)
        state = rows.aggregate(count=Count("*"), last=Max("pk"))
        key = (settings.DATABASE, until, state["count"], state["last"])
        with self._lock:
            if key == self._key:
                return self._found
        # Not under the lock: a slow scrape would keep others waiting.
        found = _sums(rows)
        with self._lock:
            self._key, self._found = key, found
        return found


_past = _Past()


def _sums(rows: QuerySet[Statistic]) -> _Sums:
    columns = {
        f"{name}_{place}": Sum(Cast(KeyTextTransform(place, name), BigIntegerField()), default=0)
        for name in HISTOGRAMS
        for place in range(BUCKETS)
    }
    found: Any = rows.values("type").annotate(wall=Sum("wall_us"), **columns).order_by()
    return {row.pop("type"): row for row in found}


def _rows() -> QuerySet[Statistic]:
    return Statistic.objects.using(settings.DATABASE).order_by()
