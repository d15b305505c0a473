"""What the workers of a daemon did, as the daemon measures it and writes it to Usage."""

import time
from datetime import timedelta

import pytest

from atp import queue
from atp.models import BUCKETS, Instance, Span, Usage, bucket_of
from atp.reports import statistics
from atp.reports.statistics import SPANS, usage
from atp.states import Event
from tests.app import tasks_daemon as types

from . import inside

# So short that the row of their daemon often says that no worker is busy.
SECONDS, TASKS = 0.005, 600


def histogram(times):
    """Return the number of durations in each bucket, from pairs of a time and a duration."""
    counts = [0] * BUCKETS
    for _, duration in times:
        counts[bucket_of(duration // timedelta(microseconds=1))] += 1
    return counts


@pytest.mark.slow
def test_charts_show_what_the_log_of_a_drained_queue_says(atpd):
    """Waiting times, run times, and for how long the workers were busy.

    On a quiet machine these are more than 90 % of their capacity.
    """
    queue.register(types.rest)
    types.rest.enqueue_many([{"seconds": SECONDS}] * TASKS)
    began = time.monotonic()
    daemon = atpd("--drain", processes=2)
    assert daemon.wait() == 0
    lifetime = time.monotonic() - began

    told = [
        {record.event: record.time for record in instance.log if record.event}
        for instance in Instance.objects.all()
    ]
    waits = [(at[Event.START], at[Event.START] - at[Event.ENQUEUE]) for at in told]
    runs = [(at[Event.FINISH], at[Event.FINISH] - at[Event.START]) for at in told]
    counted = statistics.sums()["daemon.rest"]
    assert (counted.wait, counted.run) == (histogram(waits), histogram(runs))
    points = statistics.series(None, SPANS["7d"]).points
    assert sum(point.finished for point in points) == TASKS
    for point in points:
        end = point.begin + timedelta(seconds=point.seconds)
        waited, ran = (
            [each for each in times if point.begin <= each[0] < end] for times in (waits, runs)
        )
        quantiles = statistics.quantiles_of(histogram(waited), (0.5, 0.95))
        assert (point.wait_p50, point.wait_p95) == (quantiles or (None, None))
        quantiles = statistics.quantiles_of(histogram(ran), (0.5, 0.95, 0.99))
        assert (point.run_p50, point.run_p95, point.run_p99) == (quantiles or (None, None, None))

    rows = list(Usage.objects.all())
    assert {(row.span, row.name) for row in rows} == {
        (Span.MINUTE, f"{inside.hostname()}:{daemon.pid}")
    }
    assert sum(row.ended for row in rows) == TASKS
    busy, capacity = (
        sum(getattr(row, name) for row in rows) for name in ("busy_us", "capacity_us")
    )
    run_time = sum((duration for _, duration in runs), timedelta())
    assert busy == pytest.approx(run_time / timedelta(microseconds=1), rel=0.01)
    assert TASKS * SECONDS * 1e6 <= busy <= capacity <= 2e6 * lifetime
    periods = [period for period in usage(SPANS["7d"]) if period.capacity]
    assert sum(period.busy for period in periods) == pytest.approx(busy / 1e6)
    assert sum(period.capacity for period in periods) == pytest.approx(capacity / 1e6)
    assert max(row.memory for row in rows) > 2**20
