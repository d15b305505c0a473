"""How long it takes from enqueueing a task until its handler is entered, by an idle daemon.

Tasks come one by one, at random 50 to 150 ms after each other. The time is taken
from just before the call of enqueue(), and from when it has returned, until the
handler's first line. In turn with it the floor does the least that this takes.
"""

from . import floor
from .core import draining
from .core.latency import sampled
from .core.told import listening


def add_arguments(add):
    add("--samples", type=int, default=300, help="tasks of a run")
    draining.add_arguments(add)


def run(options, report):
    from .tasks import stamp

    load = draining.Load.of(options, [stamp])
    own, limit = [], []
    for _ in range(options.runs):
        limit.append(floor.latency(options.samples, options.directory))
        with listening(options.directory) as told, draining.ready(load, options.directory):
            found = sampled(options.samples, lambda number: stamp.enqueue(number=number), told)
        own.append(found)
    found = report.latencies("latency", own)
    for name, divisor in report.latencies("floor", limit).items():
        report.compare(f"floor, {name}", found[name] / divisor)
