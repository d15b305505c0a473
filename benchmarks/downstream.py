"""What becomes of a service that refuses and fails, called by the tasks of several daemons.

A stand-in answers 20 calls a second, 5 at once, and the others with 429. After a minute it is
counted for another: from 16 to 20 calls a second should succeed, and less than 5 % be refused.
Then it answers 503 for a minute: no more calls should fail than there are workers, ten, and
probes. At last the daemon that probes is killed, and it is told how long it takes until another
does; none of the tasks may have FAILED or have spent a retry.
"""

import time

from .core import batch
from .core.daemons import daemons
from .core.standin import DOWN, OK, REFUSED, stand_in

RATE, BURST = 20, 5
SUCCEED, MOST_REFUSED, BREAKER = (16, 20), 5.0, 10
LOOK_EVERY = 0.05
# Longer than the breaker is open after a minute, and than a lease.
PATIENCE = 200


def add_arguments(add):
    add("--daemons", type=int, default=3, help="daemons that share the downstream")
    add("--processes", type=int, default=8, help="workers of each daemon")
    add("--settle", type=int, default=60, help="seconds before it is counted")
    add("--seconds", type=int, default=60, help="for how long calls are counted")
    add("--outage", type=int, default=60, help="for how long it answers 503; 0 leaves that out")


def run(options, report):
    found = [_once(options) for _ in range(options.runs)]
    ok = report.rates("calls that succeed", [each["ok"] for each in found])
    refused = report.shares("calls refused", [each["refused"] for each in found])
    if options.settle and not SUCCEED[0] <= ok <= SUCCEED[1] + 0.5:
        report.exceeded.append(f"{ok:.1f} calls a second succeed, not {SUCCEED[0]} to {SUCCEED[1]}")
    if options.settle and refused >= MOST_REFUSED:
        report.exceeded.append(f"{refused:.1f} % of the calls are refused")
    if options.outage:
        most = options.daemons * options.processes + BREAKER
        failed = report.row(
            "calls that fail in an outage", [each["failed"] for each in found], unit=""
        )
        report.row("of these probes", [each["probes"] for each in found], unit="")
        report.row("after it, until one succeeds", [each["back"] for each in found], unit="s")
        report.rates("in the 10 s after that", [each["first"] for each in found])
        report.row(
            "a probe after the kill of its daemon", [each["again"] for each in found], unit="s"
        )
        if failed > most + max(each["probes"] for each in found):
            report.exceeded.append(f"{failed:.0f} calls failed, not {most} and the probes")


def _once(options):
    from .tasks import call

    with (
        stand_in(RATE, BURST) as service,
        daemons(
            options.directory,
            count=options.daemons,
            processes=options.processes,
            types=[call.identifier],
        ) as fleet,
    ):
        length = options.settle + options.seconds + options.outage + PATIENCE
        inputs = [{"url": service.url}] * (2 * RATE * length)
        made = batch.enqueue([(call, inputs)])
        _sleep(options.settle, fleet)
        since = time.monotonic()
        _sleep(options.seconds, fleet)
        until = time.monotonic()
        counts = {status: service.count(status, since, until) for status in (OK, REFUSED)}
        found = {
            "ok": counts[OK] / (until - since),
            "refused": counts[REFUSED] / max(1, sum(counts.values())),
        }
        if options.outage:
            found |= _outage(options, service, fleet) | _kill(service, fleet)
        _give_up(call, fleet)
    _check(made)
    return found


def _outage(options, service, fleet):
    """Let the service fail for a while; return what was called meanwhile, and afterwards."""
    service.is_down, began = True, time.monotonic()
    _sleep(options.outage, fleet)
    service.is_down, ended = False, time.monotonic()
    _wait(lambda: service.count(OK, ended), fleet)
    back = time.monotonic()
    _sleep(10, fleet)
    return {
        "failed": service.count(DOWN, began),
        "probes": _probes(),
        "back": back - ended,
        "first": service.count(OK, back, back + 10) / 10,
    }


def _probes():
    """Return how often the breaker was half-open in an outage, by the log's transitions."""
    from atp.models import LogRecord

    return LogRecord.objects.filter(subject="downstream:benchmarks", detail="open").count() - 1


def _kill(service, fleet):
    """Kill the daemon that probes; return how long it takes until another daemon does."""
    from atp.models import Downstream, Task

    service.is_down = True
    _wait(lambda: Downstream.objects.filter(state="open").exists(), fleet)
    service.hangs, service.is_down = True, False
    _wait(lambda: Downstream.objects.filter(state="half-open").exists(), fleet)
    holder = Task.objects.get(pk=Downstream.objects.get().probe).daemon
    fleet.kill(fleet.pids.index(holder.pid))
    killed, calls = time.monotonic(), len(service.calls)
    _wait(lambda: len(service.calls) > calls, fleet)
    again = service.calls[calls] - killed
    service.hangs = False
    _wait(lambda: service.count(OK, killed), fleet)
    return {"again": again}


def _give_up(task_type, fleet):
    from atp import queue
    from atp.models import Task

    queue.drop(task_type.identifier)
    _wait(lambda: not Task.objects.exists(), fleet)


def _check(made):
    """Raise BatchError if one FAILED of itself, or has spent a retry."""
    from atp.models import Instance

    rows = Instance.objects.filter(pk__range=made.keys)
    failed = rows.filter(state="FAILED").exclude(reason="DROPPED").count()
    retried = rows.filter(retries__gt=0).count()
    if failed or retried:
        raise batch.BatchError(f"{failed} are FAILED, {retried} have spent a retry.")


def _sleep(seconds, fleet):
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        fleet.check()
        time.sleep(min(left, 1.0))


def _wait(is_over, fleet):
    deadline = time.monotonic() + PATIENCE
    while not is_over():
        fleet.check()
        if time.monotonic() > deadline:
            raise batch.BatchError(f"After {PATIENCE} s it is not so:\n{fleet.log}")
        time.sleep(LOOK_EVERY)
