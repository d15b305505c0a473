"""How many tasks a second daemons get through, until the database shows nothing unfinished.

The daemons are up, have all their workers and have run some tasks to warm up, so
starting is not counted. Then the tasks are enqueued in one transaction: all can be
seen at its commit. There the clock starts, and stops when no Task is left; both
ends are told by the database's clock. Afterwards each Instance has to be FINISHED,
after one attempt, with four records in its log.

In turn with it the floor writes as much; and where there are more daemons, one of
as many workers drains as much. Where handlers sleep, it is told what share of the
time workers were in them, by their own clocks. On PostgreSQL it is counted too what
a task costs. What the daemons' processes take of a processor depends least on what else
runs on the machine.
"""

from dataclasses import replace

from . import floor
from .core import draining, filling
from .core.database import vacuum

# Long ago: what waits has waited, what has ended has ended before.
EPOCH = 1_700_000_000


def add_arguments(add):
    add("--tasks", type=int, default=20_000, help="tasks of a run")
    draining.add_arguments(add)
    add("--daemons", type=int, default=1, help="daemons")
    add("--types", type=int, default=1, help="Types that the tasks are of")
    add("--backlog", type=int, default=0, help="Instances that wait, of a Type nobody serves")
    add("--history", type=int, default=0, help="Instances that have FINISHED, of the first Type")
    add("--duration-ms", type=int, default=0, help="milliseconds that a handler sleeps")


def run(options, report):
    from django.db import connection

    load = _load(options)
    filling.fill_finished(connection, load.types[0].identifier, options.history, epoch=EPOCH)
    filling.fill_waiting(connection, "benchmarks.other", options.backlog, epoch=EPOCH)
    vacuum(connection)
    alone = replace(load, daemons=1, processes=load.workers)
    limit, drained, drained_alone = [], [], []
    for _ in range(options.runs):
        if not options.duration_ms:
            limit.append(floor.drain(options.tasks))
        drained.append(draining.run(load, options.directory))
        if load.daemons > 1:
            drained_alone.append(draining.run(alone, options.directory))
    rate = report.rates("drain", [run.rate for run in drained])
    report.rates("from the first claim", [run.rate_from_first_claim for run in drained])
    report.row("processor of the daemons", [run.processor for run in drained], unit="µs a task")
    if options.duration_ms:
        report.shares("workers busy", [run.busy for run in drained])
    else:
        report.compare("floor", rate / report.rates("floor", limit))
    if load.daemons > 1:
        divisor = f"one daemon with {load.workers} workers"
        report.compare(divisor, rate / report.rates(divisor, [run.rate for run in drained_alone]))
    if connection.vendor == "postgresql" and not options.duration_ms:
        draining.cost(load, options.directory).tell(report, "drain", options.tasks)


def _load(options):
    from .tasks import NOOPS, SLEEPS

    types = SLEEPS if options.duration_ms else NOOPS
    return draining.Load.of(
        options,
        types[: options.types],
        tasks=options.tasks,
        daemons=options.daemons,
        milliseconds=options.duration_ms,
    )
