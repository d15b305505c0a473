"""How long a task waits that comes now and then, while another lane is full.

A Type, or a collection of the same Type, has more waiting than daemons will get done,
each of some milliseconds. Beside it tasks come one by one: told is how long each
waited, from its being enqueued until its start, by the database's clock. It is to be
no more than one run of the others and 50 ms, in 95 of 100.
"""

import time

from .core import draining, filling
from .core.daemons import daemons
from .core.database import vacuum
from .core.report import percentile
from .core.told import listening

PAST = 1_700_000_000
ALLOWED_MS = 50


def add_arguments(add):
    add("--burst", type=int, default=200_000, help="tasks that wait")
    add("--samples", type=int, default=30, help="tasks beside them")
    add("--every-ms", type=int, default=1_000, help="milliseconds from one of them to the next")
    add("--burst-ms", type=int, default=20, help="milliseconds that each takes")
    draining.add_arguments(add)


def run(options, report):
    from django.db import connection

    from .tasks import burst, seldom

    filling.fill_waiting(connection, burst.identifier, options.burst, epoch=PAST)
    vacuum(connection)
    cases = {"another Type": seldom, "another collection": burst.using(collection="seldom")}
    waits = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, task_type in cases.items():
            waits[name].append(_p95(task_type, options))
    for name, found in waits.items():
        median = report.row(f"wait in {name}, p95", found, unit="ms")
        limit = options.burst_ms + ALLOWED_MS
        if median > limit:
            report.exceeded.append(f"what is of {name} waited {median:.0f} ms, not {limit}")


def _p95(task_type, options):
    from .tasks import burst, seldom

    types = [burst.identifier, seldom.identifier]
    with (
        listening(options.directory) as told,
        daemons(options.directory, processes=options.processes, types=types) as fleet,
    ):
        while len(told.pairs()) < options.warm_up:
            fleet.check()
            time.sleep(0.1)
        instances = []
        for _ in range(options.samples):
            instances.append(task_type.enqueue(number=0, milliseconds=options.burst_ms))
            time.sleep(options.every_ms / 1000)
        waits = [each.wait(60).started - each.created for each in instances]
    return percentile([1000 * wait.total_seconds() for wait in waits], 0.95)
