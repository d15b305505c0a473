"""Draining while another session holds a transaction open: nothing dead can be cleaned up.

The transaction has looked at the database before the tasks are enqueued, and stays
open until all are done. Told are the rates of each tenth of the tasks, in the order
in which they finished, from the first claim on; the last is divided by the first.
"""

from contextlib import contextmanager
from itertools import pairwise

from .core import batch, draining
from .core.database import vacuum

PARTS = 10


def add_arguments(add):
    add("--tasks", type=int, default=200_000, help="tasks of a run")
    draining.add_arguments(add)


def run(options, report):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1], tasks=options.tasks)
    runs = [_rates(load, options.directory) for _ in range(options.runs)]
    tenths = [
        report.rates(f"tenth {number}", rates)
        for number, rates in enumerate(zip(*runs, strict=True), start=1)
    ]
    report.compare("the first tenth", tenths[-1] / tenths[0])


def _rates(load, directory):
    """Return the rate of each tenth. It begins with nothing dead in the database."""
    from django.db import connection

    from atp.models import Instance

    vacuum(connection)
    with draining.ready(load, directory) as fleet, _open_transaction():
        drained = draining.drain(load, fleet)
        times = batch.finish_times(Instance.objects.filter(pk__range=drained.batch.keys))
    size = load.tasks // PARTS
    ends = [drained.settled.claimed, *(times[number * size - 1] for number in range(1, PARTS + 1))]
    return [size / (end - begin) for begin, end in pairwise(ends)]


@contextmanager
def _open_transaction():
    """Hold a transaction open, in a session of its own, that has seen the database as it is."""
    from django.db import connection

    apart = connection.copy()
    isolation = "ISOLATION LEVEL REPEATABLE READ" if connection.vendor == "postgresql" else ""
    try:
        with apart.cursor() as cursor:
            cursor.execute(f"BEGIN {isolation}")
            cursor.execute("SELECT count(*) FROM atp_type")
            yield
    finally:
        apart.close()
