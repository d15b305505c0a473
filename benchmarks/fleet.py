"""The kind of work that RFC 14 was written for: long tasks, several daemons, of which one dies.

When a quarter of the tasks has started, one daemon is killed with SIGKILL; after half
of them another is stopped in order. It is an error if two attempts of a task ran at
the same time, by what they say themselves, or if something was not done. Beside the
time it is told how many statements the daemons sent meanwhile.
"""

import time
from collections import Counter
from itertools import pairwise

from .core import batch
from .core.daemons import daemons
from .core.statements import counted
from .core.told import listening

LOOK_EVERY = 0.2
# A number is told together with that of its attempt.
MOST_ATTEMPTS = 64


def add_arguments(add):
    add("--tasks", type=int, default=200, help="tasks of a run")
    add("--duration-ms", type=int, default=60_000, help="how long a task takes")
    add("--daemons", type=int, default=4, help="daemons, of which one is killed and one stopped")
    add("--processes", type=int, default=10, help="workers of each daemon")


def run(options, report):
    found = [_once(options) for _ in range(options.runs)]
    report.row("until all is done", [each["seconds"] for each in found], unit="s")
    least = options.tasks * options.duration_ms / 1000 / options.daemons / options.processes
    report.compare("the work shared out evenly", report.median["until all is done, s"] / least)
    report.row("attempts lost with the daemon", [each["lost"] for each in found], unit="")
    report.row("overlaps", [each["overlaps"] for each in found], unit="")
    if found[0]["statements"] is not None:
        rates = [each["statements"] / each["seconds"] for each in found]
        report.row("statements", rates, unit="/s")
        report.row(
            "statements",
            [each["statements"] / options.tasks for each in found],
            unit="a task",
        )


def _once(options):
    from django.db import connection

    from atp.models import Instance, Task

    from .tasks import long

    with (
        counted(connection) as statements,
        listening(options.directory) as told,
        daemons(
            options.directory,
            count=options.daemons,
            processes=options.processes,
            types=[long.identifier],
        ) as fleet,
    ):
        if statements:
            statements.forget()
        began = time.monotonic()
        made = batch.enqueue(
            [(long, [{"number": n, "ms": options.duration_ms} for n in range(options.tasks)])]
        )
        _wait(lambda: _started(told) >= options.tasks / 4, options, fleet)
        fleet.kill(0)
        _wait(lambda: _started(told) >= options.tasks / 2, options, fleet)
        fleet.stop(1)
        _wait(lambda: not Task.objects.exists(), options, fleet)
        seconds = time.monotonic() - began
        sent = statements.by_pid() if statements else None
        told_all = told.pairs()
    rows = Instance.objects.filter(pk__range=made.keys)
    states = Counter(rows.values_list("state", flat=True))
    if states != {"FINISHED": options.tasks}:
        raise batch.BatchError(f"Not all are FINISHED: {states}.")
    overlaps = _overlaps(told_all)
    if overlaps:
        raise batch.BatchError(f"Tasks of which two attempts ran at once: {overlaps}.")
    with connection.cursor() as cursor:
        if sent is not None:  # this session's own looks are not the daemons'
            cursor.execute("SELECT pg_backend_pid()")
            del sent[cursor.fetchone()[0]]
    return {
        "seconds": seconds,
        "lost": sum(rows.values_list("lost", flat=True)),
        "overlaps": len(overlaps),
        "statements": None if sent is None else sent.total(),
    }


def _started(told):
    return len({key // MOST_ATTEMPTS for key, _ in told.pairs()})


def _wait(is_over, options, fleet):
    """Wait, for no longer than all of it could take on one worker of each daemon."""
    most = 120 + 2 * options.tasks * options.duration_ms / 1000
    deadline = time.monotonic() + most
    while not is_over():
        fleet.check()
        if time.monotonic() > deadline:
            raise batch.BatchError(f"After {most:.0f} s it is not done:\n{fleet.log}")
        time.sleep(LOOK_EVERY)


def _overlaps(pairs):
    """Return the numbers of tasks of which an attempt began before another was last seen."""
    first, last = {}, {}
    for key, at in pairs:
        first[key] = min(at, first.get(key, at))
        last[key] = max(at, last.get(key, at))
    attempts = {}
    for key in sorted(first):
        attempts.setdefault(key // MOST_ATTEMPTS, []).append(key)
    return [
        number
        for number, own in attempts.items()
        if any(first[later] < last[earlier] for earlier, later in pairwise(own))
    ]
