"""What limits over several daemons do: whether they are kept, and how much gets done under them.

With ``max_running=1`` tasks of some milliseconds are done by daemons of which a worker is
killed now and then. It is an error if two were at it at once, by what they say
themselves; how many a second get done is divided by what one worker does without a limit,
and should be half of that at least. With a rate the starts of some seconds are counted:
they should be between 95 and 102 % of what it says.
"""

import os
import random
import signal
import time

from .core import batch
from .core.daemons import daemons
from .core.processes import Process
from .core.told import listening

LEAST, RATES = 0.5, (95, 102)
LOOK_EVERY = 0.05


def add_arguments(add):
    add("--tasks", type=int, default=500, help="tasks of a run, where one is done at a time")
    add("--task-ms", type=int, default=20, help="milliseconds that each takes")
    add("--daemons", type=int, default=3, help="daemons that share a limit")
    add("--processes", type=int, default=2, help="workers of each daemon")
    add("--kills", type=int, default=5, help="workers that are killed meanwhile")
    add("--rate", type=int, default=50, help="starts a second")
    add("--burst", type=int, default=5, help="starts at once")
    add("--seconds", type=int, default=20, help="for how long starts are counted")


def run(options, report):
    alone, limited, started = [], [], []
    for _ in range(options.runs):
        alone.append(_rate(options, count=1, processes=1, kills=0, max_running=None))
        shared = {"count": options.daemons, "processes": options.processes}
        limited.append(_rate(options, **shared, kills=options.kills, max_running=1))
        started.append(_starts(options, **shared))
    of_one = report.rates("one worker, without a limit", alone)
    rate = report.rates("one at a time", limited)
    report.compare("one worker", rate / of_one)
    if rate < LEAST * of_one:
        report.exceeded.append(f"one at a time is {rate / of_one:.2f} of one worker, not {LEAST}")
    share = report.shares("starts, of what the rate says", started)
    if not RATES[0] <= share <= RATES[1]:
        report.exceeded.append(f"the starts were {share:.1f} % of what the rate says")


def _rate(options, *, count, processes, kills, max_running):
    """Return how many tasks a second get done. Raises BatchError if two were at it at once."""
    from atp import queue
    from atp.models import Task

    from .tasks import span

    queue.limit(span.identifier, max_running=max_running, rate=None)
    fleet_of = {"count": count, "processes": processes, "types": [span.identifier]}
    with (
        listening(options.directory) as told,
        daemons(options.directory, **fleet_of) as fleet,
    ):
        given = [{"number": n + 1, "ms": options.task_ms} for n in range(options.tasks)]
        batch.enqueue([(span, given)])
        for number in range(kills):
            due = (number + 1) * options.tasks // (kills + 1)
            batch.wait_until(lambda n=due: len(told.pairs()) >= 2 * n, told.pairs, fleet, 0.01)
            _kill_a_worker(fleet)
        batch.wait_until(lambda: not Task.objects.exists(), Task.objects.count, fleet, LOOK_EVERY)
        spans = _spans(told.pairs())
    if max_running is not None:
        _check(spans)
    return len(spans) / (max(end for _, end in spans) - min(begin for begin, _ in spans))


def _starts(options, *, count, processes):
    """Return which part of the starts that a rate says there are."""
    from atp import queue

    from .tasks import span

    wanted = options.rate * options.seconds
    queue.limit(span.identifier, max_running=None, rate=f"{options.rate}/s", burst=options.burst)
    batch.enqueue([(span, [{"number": n + 1, "ms": 1} for n in range(2 * wanted)])])
    fleet_of = {"count": count, "processes": processes, "types": [span.identifier]}
    with (
        listening(options.directory) as told,
        daemons(options.directory, **fleet_of) as fleet,
    ):
        batch.wait_until(told.pairs, told.pairs, fleet, LOOK_EVERY)
        first = min(at for _, at in told.pairs())
        over = first + options.seconds
        batch.wait_until(lambda: time.monotonic() > over, told.pairs, fleet, LOOK_EVERY)
        starts = [at for key, at in told.pairs() if key > 0 and at < over]
        queue.drop(span.identifier)
        batch.wait_until(lambda: not _is_left(), _is_left, fleet, LOOK_EVERY)
        queue.open_gate(span.identifier)
    return len(starts) / wanted


def _is_left():
    from atp.models import Task

    return Task.objects.count()


def _kill_a_worker(fleet):
    family = [process for pid in fleet.pids for process in Process(pid).family()]
    workers = [process.pid for process in family if process.name.startswith("atpd-worker")]
    os.kill(random.choice(workers), signal.SIGKILL)


def _spans(pairs):
    """Return from when to when each attempt was at it, in order; one without an end was not."""
    begun, spans = {}, []
    for key, at in pairs:
        if key > 0:
            begun[key] = at
        else:
            spans.append((begun.pop(-key), at))
    spans += [(at, at) for at in begun.values()]
    return sorted(spans)


def _check(spans):
    latest = 0.0
    for begin, end in spans:
        if begin < latest:
            raise batch.BatchError(f"Two were at it at once, for {latest - begin:.3f} s.")
        latest = max(latest, end)
