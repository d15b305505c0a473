"""How long a scrape of the metrics takes, when much waits, has ended and was counted.

So many Instances wait, in some lanes of one Type, which a gate of one lane holds in part; so many
have FINISHED. Of some Types every minute of two days was counted. In 95 of 100 cases a scrape may
take MOST_MILLISECONDS; the exit status is 1 if it takes more. The first scrape of a process adds
up what was counted in past hours: it is told by itself.
"""

import time
from datetime import timedelta

from .core import filling
from .core.database import vacuum
from .core.report import percentile

MOST_MILLISECONDS = 300
PAST = 1_700_000_000
WAITS, ENDED = "benchmarks.other", "benchmarks.seldom"
MINUTES = 2 * 24 * 60


def add_arguments(add):
    add("--waiting", type=int, default=1_000_000, help="Instances that wait")
    add("--lanes", type=int, default=10, help="lanes that they wait in")
    add("--ended", type=int, default=1_000_000, help="Instances that have FINISHED")
    add("--types", type=int, default=20, help="Types whose minutes were counted")
    add("--repeat", type=int, default=30, help="scrapes")


def run(options, report):
    from django.db import connection

    from atp import queue
    from atp.contrib.prometheus import exposition

    queue.register_all()
    lanes = {"lanes": options.lanes, "collection": "lane" if options.lanes > 1 else ""}
    filling.fill_finished(connection, ENDED, options.ended, epoch=PAST)
    filling.fill_waiting(connection, WAITS, options.waiting, epoch=PAST, **lanes)
    _count(options.types)
    if options.lanes > 1:
        queue.hold(WAITS, "lane1")
    vacuum(connection)
    first, text = _timed(exposition)
    report.row("the first scrape", [first], unit="ms")
    found = [_timed(exposition)[0] for _ in range(options.repeat)]
    report.row("a scrape", found, unit="ms")
    report.row("size", [len(text) / 1000], unit="kB")
    if b"atp_scrape_complete 1.0" not in text:
        report.exceeded.append("A scrape was not complete.")
    if (slow := percentile(found, 0.95)) > MOST_MILLISECONDS:
        report.exceeded.append(f"a scrape: p95 {slow:.0f} ms")


def _timed(call):
    began = time.perf_counter()
    made = call()
    return 1000 * (time.perf_counter() - began), made


def _count(types):
    """Write what daemons would have counted in each minute of two days."""
    from atp.models import BUCKETS, Statistic
    from atp.store import get_store

    now = get_store().now().replace(second=0, microsecond=0)
    numbers = [number % 7 for number in range(BUCKETS)]
    Statistic.objects.bulk_create(
        (
            Statistic(
                span=60,
                start=now - timedelta(minutes=minute),
                type=f"benchmarks.counted-{each}",
                started=10,
                finished=9,
                failed_error=1,
                wall_us=1_000_000,
                wait=numbers,
                run=numbers,
            )
            for minute in range(MINUTES)
            for each in range(types)
        ),
        batch_size=2_000,
    )
