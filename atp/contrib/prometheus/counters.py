"""Counters and histograms: what daemons have counted since the queue began.

They are sums over the rows of Statistic, which outlive Instances, their log and their Types. So
they never fall, whichever process answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from django.db.models import BigIntegerField, Count, Max, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from ...conf import settings
from ...models import Statistic, Type
from ...reports import overview
from ...rows.statistic import BUCKETS, COUNTS, HISTOGRAMS, failed
from ...states import Reason, State
from .scrape import Scrape

_ATTEMPTS = ("started", "retried", "deferred", "lost")
_HELP = {
    "wait": "From the due time of an attempt to its start.",
    "run": "From the start of an attempt to its end, if its handler ended it.",
}
# The events that end a run, whose times are counted.
RUNS = ("finished", "retried", "deferred", failed(Reason.ERROR), failed(Reason.FATAL))
HOUR = timedelta(hours=1)
# Sums of the columns of Statistic, and of the buckets of both histograms, by Type.
_Sums = dict[str, dict[str, int]]


def counted(scrape: Scrape) -> Iterator[Metric]:
    """Yield all that was counted by Type: attempts, ends, waiting and run times."""
    hour = _hour()
    lately, before = _sums(_rows().filter(start__gte=hour)), _past.sums(hour)
    found = {
        type: _added(each[type] for each in (before, lately) if type in each)
        for type in before.keys() | lately.keys()
    }
    yield from _events(found)
    yield from _durations(found)


def run_times(scrape: Scrape) -> Iterator[Metric]:
    """Read the mean run times of Types, of the last hour, else of all that ran; yield nothing.

    A Type of which nothing has ended yet has none.
    """
    hour = _hour()
    lately = _sums(_rows().filter(start__gte=overview.now() - HOUR), histograms=False)
    found = {}
    for sums in (_past.sums(hour), lately):
        for type, each in sums.items():
            count = sum(each[name] for name in RUNS)
            if count:
                found[type] = each["wall_us"] / 1e6 / count
    scrape.runs = found
    yield from ()


def _hour() -> datetime:
    return overview.now().replace(minute=0, second=0, microsecond=0)


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _events(found: _Sums) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "atp_attempts", "Attempts, by what became of them.", labels=("type", "event")
    )
    ended = CounterMetricFamily(
        "atp_instances_ended", "Instances that have ended.", labels=("type", "state", "reason")
    )
    # A Type begins with 0: else its first events would not be an increase.
    names = Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
    for type in sorted({*found, *names}):
        row = found.get(type, {})
        for name in _ATTEMPTS:
            attempts.add_metric([type, name], row.get(name, 0))
        ended.add_metric([type, State.FINISHED.value, ""], row.get("finished", 0))
        for reason in Reason:
            count = row.get(failed(reason), 0)
            ended.add_metric([type, State.FAILED.value, reason.value], count)
    yield from (attempts, ended)


def _durations(found: _Sums) -> Iterator[Metric]:
    for name in HISTOGRAMS:
        family = HistogramMetricFamily(f"atp_{name}_seconds", _HELP[name], labels=("type",))
        for type, sums in sorted(found.items()):
            numbers = [sums[f"{name}_{n}"] for n in range(BUCKETS)]
            total = sums["wall_us"] / 1e6 if name == "run" else None
            family.add_metric([type], list(_cumulated(numbers)), sum_value=total)
        yield family


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


def _sums(rows: QuerySet[Statistic], *, histograms: bool = True) -> _Sums:
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
    return Statistic.objects.using(settings.DATABASE).order_by()
