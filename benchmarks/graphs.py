"""Graphs: how quickly one is written, and what waiting for others costs.

A graph of tasks that do nothing is submitted: one, then all the others beside each other,
then one that waits for them all. It is timed how long that takes, with all that is checked,
beside as many Instances of the same Type in one call of ``enqueue_many()``; and how many of
its tasks a second one daemon does, beside the same number of tasks in no graph. That should
be 0.7 of it at least.
"""

import time

from .core import batch, draining
from .core.told import listening

LEAST = 0.7


def add_arguments(add):
    add("--nodes", type=int, default=10_000, help="tasks of a graph")
    draining.add_arguments(add)


def run(options, report):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1], tasks=options.nodes)
    written, enqueued, plain, done = [], [], [], []
    for _ in range(options.runs):
        with listening(options.directory), draining.ready(load, options.directory) as fleet:
            plain.append(draining.drain(load, fleet).rate)
            seconds, many = _enqueue(NOOPS[0], options.nodes)
            enqueued.append(seconds)
            batch.settle(many, fleet)
            seconds, submitted = _submit(NOOPS[0], options.nodes)
            written.append(seconds)
            settled = batch.settle(submitted, fleet)
            _verify(submitted)
            done.append(options.nodes / settled.seconds)
    of_bulk = report.row(f"{options.nodes} enqueued in bulk", enqueued, unit="s")
    of_graph = report.row(f"{options.nodes} nodes submitted", written, unit="s")
    report.compare("enqueued in bulk", of_graph / of_bulk, figure="nodes submitted")
    of_plain = report.rates("in no graph", plain)
    rate = report.rates("fan-out and fan-in", done)
    report.compare("in no graph", rate / of_plain, figure="fan-out and fan-in")
    if rate < LEAST * of_plain:
        report.exceeded.append(f"a graph is {rate / of_plain:.2f} of no graph, not {LEAST}")


def _enqueue(noop, count):
    """Enqueue as many in no graph; return the seconds of that, and their :class:`.batch.Batch`."""
    began = time.perf_counter()
    instances = noop.enqueue_many([{"number": n} for n in range(count)])
    seconds, committed = time.perf_counter() - began, batch.clock()
    return seconds, batch.Batch(first=instances[0].pk, last=instances[-1].pk, committed=committed)


def _submit(noop, count):
    """Write the graph; return how many seconds that took, and its :class:`.batch.Batch`."""
    from atp import Graph
    from atp.models import Node

    began = time.perf_counter()
    with Graph("benchmark") as graph:
        first = graph.add(noop, number=0, name="first")
        others = graph.map(noop, [{"number": n} for n in range(1, count - 1)], after=first)
        graph.add(noop, number=count, name="last", after=others)
    seconds = time.perf_counter() - began
    committed = batch.clock()
    keys = Node.objects.filter(graph=graph.row).order_by("pk").values_list("pk", flat=True)
    submitted = batch.Batch(first=keys.first(), last=keys.last(), committed=committed)
    if len(submitted) != count:
        raise batch.BatchError("Somebody else enqueues into this database.")
    return seconds, submitted


def _verify(submitted):
    """Raise BatchError unless each node is FINISHED after one attempt, the last one last."""
    from atp.models import Instance

    rows = Instance.objects.filter(pk__range=submitted.keys)
    if rows.exclude(state="FINISHED", attempt=1).exists():
        raise batch.BatchError("Not all nodes are FINISHED after one attempt.")
    last = rows.order_by("-started").first().node.name
    if last != "last":
        raise batch.BatchError(f"{last} started last, and not the node that waits for all.")
