"""How many Instances a second are enqueued one by one, each in a transaction of its own.

Clients are processes with a connection each. In turn with them as many write the
same rows by the floor's one statement and commit; on PostgreSQL they also do so by a
statement that is prepared, and it is counted what an Instance costs.
"""

from . import floor
from .core import clients
from .core.cost import spent

# Instances whose cost is counted.
COUNTED = 200


def add_arguments(add):
    add("--single", type=int, default=4_000, help="Instances of a run that are enqueued one by one")
    add("--clients", type=int, default=0, help="clients; 0 is 1 and then 8")


def run(options, report):
    from django.db import connection

    from .tasks import other

    for count in [options.clients] if options.clients else floor.CLIENTS:
        named = clients.named(count)
        own, limits = [], {f"floor, {named}": (False, [])}
        if connection.vendor == "postgresql":
            limits[f"floor, prepared, {named}"] = (True, [])
        for _ in range(options.runs):
            for prepared, limit in limits.values():
                limit.append(floor.enqueue(options.single, count, prepared=prepared))
            own.append(_enqueue(options.single, count))
        rate = report.rates(f"enqueue, {named}", own)
        for name, (_, limit) in limits.items():
            report.compare(name, rate / report.rates(name, limit))
    if connection.vendor == "postgresql":
        with spent(connection, own=True) as cost:
            for number in range(COUNTED):
                other.enqueue(number=number)
        cost.tell(report, "enqueue", COUNTED)


def _enqueue(tasks, count):
    """Return how many Instances a second so many clients enqueue together."""
    from .tasks import other

    def prepare():
        return lambda number: other.enqueue(number=number)

    return clients.rate(count, tasks, prepare)
