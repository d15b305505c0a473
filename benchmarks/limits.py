"""What limits over several daemons do: whether they are kept, and how much gets done under them.

With ``max_running=1`` tasks of some milliseconds are done by daemons of which a worker is
killed now and then. It is an error if two were at it at once, by what they say
themselves; how many a second get done is divided by what one worker does without a limit,
and should be half of that at least. With a rate the starts of some seconds are counted:
they should be between 95 and 102 % of what it says.

Then tasks that do nothing are drained by one daemon, without a limit and with limits that
are far from being reached: with these it should be half as quick at least. And of the
same tasks as many should start as a rate says that is high, but below what they can do:
with one daemon, and with several.
"""

import os
import random
import signal
import time

from .core import batch, draining
from .core.daemons import daemons
from .core.processes import Process
from .core.told import listening

LEAST, RATES = 0.5, (95, 102)
NOT_BINDING = {"max_running=1000": {"max_running": 1000}, 'rate="100000/s"': {"rate": "100000/s"}}
NO_LIMIT = {"max_running": None, "rate": None}
LOOK_EVERY = 0.05


def add_arguments(add):
    add("--tasks", type=int, default=500, help="tasks, one done at a time; 0 leaves that out")
    add("--task-ms", type=int, default=20, help="milliseconds that each takes")
    add("--daemons", type=int, default=3, help="daemons that share a limit")
    add("--processes", type=int, default=2, help="workers of each daemon")
    add("--kills", type=int, default=5, help="workers that are killed meanwhile")
    add("--rate", type=int, default=50, help="starts a second")
    add("--burst", type=int, default=5, help="starts at once")
    add("--seconds", type=int, default=20, help="for how long starts are counted")
    add("--noops", type=int, default=20_000, help="tasks that do nothing; 0 leaves them out")
    add("--high-rate", type=int, default=1_000, help="starts a second, of tasks that do nothing")
    add("--warm-up", type=int, default=250, help="tasks for each worker before it is measured")


def run(options, report):
    if options.tasks:
        _run_binding(options, report)
    if options.noops:
        _run_not_binding(options, report)
        _run_high_rate(options, report)


def _run_binding(options, report):
    from .tasks import span

    alone, limited, started = [], [], []
    for _ in range(options.runs):
        alone.append(_rate(options, count=1, processes=1, kills=0, max_running=None))
        shared = {"count": options.daemons, "processes": options.processes}
        limited.append(_rate(options, **shared, kills=options.kills, max_running=1))
        started.append(_starts(options, span, options.rate, burst=options.burst, ms=1, **shared))
    of_one = report.rates("one worker, without a limit", alone)
    rate = report.rates("one at a time", limited)
    report.compare("one worker", rate / of_one, figure="one at a time")
    if rate < LEAST * of_one:
        report.exceeded.append(f"one at a time is {rate / of_one:.2f} of one worker, not {LEAST}")
    figure = f"starts at {options.rate}/s"
    _check_starts(report, figure, report.shares(figure, started))


def _run_not_binding(options, report):
    from .tasks import NOOPS

    drained = {name: [] for name in ["no limit", *NOT_BINDING]}
    for _ in range(options.runs):
        for name, found in drained.items():
            found.append(_drained(NOOPS[0], options, NOT_BINDING.get(name, {})))
    medians = {name: report.rates(f"drain, {name}", found) for name, found in drained.items()}
    for name in NOT_BINDING:
        ratio = medians[name] / medians["no limit"]
        report.compare("no limit", ratio, figure=f"drain, {name}")
        if ratio < LEAST:
            report.exceeded.append(f"with {name} it is {ratio:.2f} of no limit, not {LEAST}")


def _drained(task_type, options, limit):
    """Return how many tasks a second are drained under this limit."""
    from atp import queue

    queue.limit(task_type.identifier, **NO_LIMIT | limit)
    load = draining.Load.of(options, [task_type], tasks=options.noops)
    return draining.run(load, options.directory).rate


def _run_high_rate(options, report):
    from .tasks import stamp

    for count in (1, options.daemons):
        shares = []
        for _ in range(options.runs):
            fleet_of = {"count": count, "processes": options.processes}
            shares.append(_starts(options, stamp, options.high_rate, burst=None, **fleet_of))
        who = "one daemon" if count == 1 else f"{count} daemons"
        figure = f"starts at {options.high_rate}/s, {who}"
        _check_starts(report, figure, report.shares(figure, shares))


def _check_starts(report, figure, share):
    if not RATES[0] <= share <= RATES[1]:
        report.exceeded.append(f"{figure}: {share:.1f} % of what the rate says")


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


def _starts(options, task_type, rate, *, burst, count, processes, **inputs):
    """Return which part of the starts that a rate says there are; each has these inputs."""
    from atp import queue

    wanted = rate * options.seconds
    queue.limit(task_type.identifier, max_running=None, rate=f"{rate}/s", burst=burst)
    batch.enqueue([(task_type, [{"number": n + 1, **inputs} for n in range(2 * wanted)])])
    fleet_of = {"count": count, "processes": processes, "types": [task_type.identifier]}
    with (
        listening(options.directory) as told,
        daemons(options.directory, **fleet_of) as fleet,
    ):
        batch.wait_until(told.pairs, told.pairs, fleet, LOOK_EVERY)
        first = min(at for _, at in told.pairs())
        over = first + options.seconds
        batch.wait_until(lambda: time.monotonic() > over, told.pairs, fleet, LOOK_EVERY)
        starts = [at for key, at in told.pairs() if key > 0 and at < over]
        queue.drop(task_type.identifier)
        batch.wait_until(lambda: not _is_left(), _is_left, fleet, LOOK_EVERY)
        queue.open_gate(task_type.identifier)
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
