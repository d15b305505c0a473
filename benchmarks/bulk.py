"""How many Instances a second are enqueued in bulk: 1,000 in a call, and all in one.

Each call is a transaction. In turn with them the floor writes the same rows with
1,000 Instances a statement. On PostgreSQL it is counted too what an Instance costs.
"""

from . import floor
from .core.cost import spent
from .core.report import timed

CHUNK = 1_000


def add_arguments(add):
    add("--tasks", type=int, default=20_000, help="Instances of a run")


def run(options, report):
    from django.db import connection

    from .tasks import other

    other.enqueue(number=0)  # the connection, the imports
    limit, chunks, whole = [], [], []
    for _ in range(options.runs):
        limit.append(floor.bulk(options.tasks))
        chunks.append(options.tasks / timed(_enqueue, options.tasks, CHUNK))
        whole.append(options.tasks / timed(_enqueue, options.tasks, options.tasks))
    found = {
        "1,000 in a call": report.rates("1,000 in a call", chunks),
        "all in one call": report.rates("all in one call", whole),
    }
    divisor = report.rates("floor", limit)
    for name, rate in found.items():
        report.compare("floor", rate / divisor, figure=name)
    if connection.vendor == "postgresql":
        with spent(connection, own=True) as cost:
            _enqueue(options.tasks, CHUNK)
        cost.tell(report, "1,000 in a call", options.tasks)


def _enqueue(tasks, size):
    from .tasks import other

    for first in range(0, tasks, size):
        numbers = range(first, min(first + size, tasks))
        other.enqueue_many({"number": number} for number in numbers)
