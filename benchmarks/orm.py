"""How many tasks a second are done that read a row by the ORM, add one to it and save it.

Once with Django's default, by which a connection is closed after each request, and once
with connections that are kept (CONN_MAX_AGE=None). In turn with them as many processes as
there are workers make the same calls in a plain loop, each on one connection.

On PostgreSQL it is told too how many milliseconds a first enqueue takes, from before a
connection is made, and beside it a first insert by the ORM.
"""

import json
import os
import time
from contextlib import contextmanager

from .core import clients, draining
from .core.report import percentile

LEAST, MOST_MORE = 0.8, 1.5
# By the name of the figure.
AGES = {"Django's defaults": 0, "kept connections": None}
_VARIABLE = "BENCHMARK_CONN_MAX_AGE"


def add_arguments(add):
    add("--tasks", type=int, default=4_000, help="tasks of a run")
    add("--single", type=int, default=200, help="first enqueues, each on a connection of its own")
    draining.add_arguments(add)


def run(options, report):
    from django.db import connection

    from .models import Counter
    from .tasks import ROWS, orm

    Counter.objects.bulk_create([Counter() for _ in range(ROWS)])
    load = draining.Load.of(options, [orm], tasks=options.tasks)
    loops, rates = [], {name: [] for name in AGES}
    for _ in range(options.runs):
        loops.append(clients.rate(load.workers, options.tasks, _prepare))
        for name, age in AGES.items():
            with _connections_live(age):
                rates[name].append(draining.run(load, options.directory).rate)
    loop = report.rates("plain loop", loops)
    for name, found in rates.items():
        ratio = report.rates(name, found) / loop
        report.compare("plain loop", ratio, figure=name)
        if ratio < LEAST:
            report.exceeded.append(f"with {name} it is {ratio:.2f} of the loop, not {LEAST}")
    if connection.vendor == "postgresql":
        _report_first(options, report)


def _prepare():
    from .tasks import save

    return save


@contextmanager
def _connections_live(age):
    """Have daemons that are started meanwhile keep connections as CONN_MAX_AGE says."""
    os.environ[_VARIABLE] = json.dumps(age)
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def _report_first(options, report):
    """Tell how long a first enqueue takes on a connection, and a first insert by the ORM."""
    from .models import Counter
    from .tasks import other

    kinds = {
        "first enqueue": lambda: other.enqueue(number=0),
        "first insert": Counter.objects.create,
        "only connecting": lambda: None,
    }
    runs = {name: [] for name in kinds}
    for _ in range(options.runs):
        times = {name: [] for name in kinds}
        for _ in range(options.single):
            for name, do in kinds.items():
                times[name].append(_after_connecting(do))
        for name, found in times.items():
            runs[name].append(1000 * percentile(found, 0.5))
    median = {name: report.row(name, found, unit="ms") for name, found in runs.items()}
    more = median["first enqueue"] - median["first insert"]
    report.row("first enqueue, more than an insert", [more], unit="ms")
    if more > MOST_MORE:
        report.exceeded.append(f"a first enqueue takes {more:.1f} ms more than an insert")


def _after_connecting(do):
    """Return how many seconds it takes to connect and do something."""
    from django.db import connection

    connection.close()
    began = time.perf_counter()
    connection.ensure_connection()
    do()
    return time.perf_counter() - began
