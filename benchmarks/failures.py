"""Dead letters: their groups, how exact the rate of a redrive is, and how quick the pages are.

Handlers fail for seven causes, with differing numbers: there have to be seven groups, and each
failure counted. Some are redriven at a rate. Then there are many dead letters of many groups,
and the pages of failures are asked for as the lists are: 150 ms in 95 of 100 requests.
"""

import time
from dataclasses import replace
from datetime import timedelta

from . import lists
from .core.daemons import daemons
from .core.database import vacuum

CAUSES, GROUPS = 7, 100
PATIENCE = 1800.0
LOOK_EVERY = 0.1
# The rate may be off by so much.
EXACT = 0.1
CHUNK = 5_000


def add_arguments(add):
    add("--raising", type=int, default=10_000, help="Instances whose handlers fail")
    add("--redriven", type=int, default=200, help="dead letters that are redriven at the rate")
    add("--rate", type=int, default=20, help="a second")
    add("--failures", type=int, default=100_000, help="dead letters behind the pages")
    add("--repeat", type=int, default=30, help="requests for each page")
    add("--processes", type=int, default=2, help="workers of the daemon")


def run(options, report):
    from django.db import connection

    _grouped(options, report)
    _redriven(options, report)
    began = time.perf_counter()
    newest = _fill(options.failures)
    vacuum(connection)
    print(f"filled in {time.perf_counter() - began:.0f} s\n")
    visitor = lists.Visitor()
    asked = [
        lists.Asked(name="page failures", path=f"{lists.PAGES}failures/"),
        lists.Asked(name="page failure", path=f"{lists.PAGES}failures/{newest}/"),
        lists.Asked(name="API errors", path=f"{lists.API}errors"),
    ]
    for each in asked:
        lists.measure(visitor, each, (1, None), options, report)


def _wait(condition, what):
    ends = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends:
            raise AssertionError(f"not after {PATIENCE:g} s: {what}")
        time.sleep(LOOK_EVERY)


def _grouped(options, report):
    from atp import queue
    from atp.models import ErrorGroup

    from .tasks import failing

    mended = {"mended": str(options.directory / "mended")}
    failing.enqueue_many({"number": n, **mended} for n in range(options.raising))

    def is_counted():
        return sum(ErrorGroup.objects.values_list("count", flat=True)) >= options.raising

    began = time.perf_counter()
    with daemons(options.directory, processes=options.processes):
        _wait(is_counted, "all are counted")
    seconds = time.perf_counter() - began
    counts = [group.count for group in queue.error_groups()]
    assert len(counts) == CAUSES, counts
    assert sum(counts) == options.raising, counts
    report.row("failures, with the start", [options.raising / seconds], unit="tasks/s")


def _redriven(options, report):
    from atp import queue
    from atp.models import Instance, LogRecord

    (options.directory / "mended").touch()
    last = Instance.objects.filter(error__isnull=False).order_by("finished")
    until = list(last.values_list("finished", flat=True)[: options.redriven])[-1]
    instance = queue.redrive_matching(
        type="benchmarks.failing", ended_before=until, rate=f"{options.rate}/s"
    )
    with daemons(options.directory, processes=options.processes):
        instance.wait(PATIENCE)
    times = list(LogRecord.objects.filter(kind="redrive").order_by("pk").values_list("time"))
    took = (times[-1][0] - times[0][0]).total_seconds()
    rate = (len(times) - 1) / max(took, 1e-6)
    report.row("redriven", [rate], unit="a second")
    if abs(rate / options.rate - 1) > EXACT:
        report.exceeded.append(f"redriven at {rate:.1f} a second, not {options.rate}")


def _fill(count):
    """Write dead letters of many groups; returns the name of the newest group."""
    from atp.models import ErrorGroup, Instance, LogRecord, Type
    from atp.store import get_store
    from atp.store.failures import failed

    from .tasks import failing

    now = get_store().now()
    types = [f"benchmarks.filled.{number}" for number in range(5)]
    like = failing.registration()
    get_store().types.register([replace(like, identifier=name) for name in types])
    keys = dict(Type.objects.filter(identifier__in=types).values_list("identifier", "pk"))
    causes = [
        failed(types[n % 5], (str(n),), title=f"ValueError: cause {n} of it") for n in range(GROUPS)
    ]
    newest = {}
    for first in range(0, count, CHUNK):
        numbers = range(first, min(first + CHUNK, count))
        rows = Instance.objects.bulk_create(
            Instance(
                type_id=keys[causes[n % GROUPS].type],
                state="FAILED",
                reason="ERROR",
                attempt=1,
                collection=f"user:{n % 43}",
                created=now,
                finished=now - timedelta(milliseconds=count - n),
                error_id=causes[n % GROUPS].group,
            )
            for n in numbers
        )
        LogRecord.objects.bulk_create(
            LogRecord(
                instance=row,
                time=row.finished,
                kind="fail",
                state="FAILED",
                attempt=1,
                level=40,
                message=f"Traceback (most recent call last):\nValueError: {row.uuid}",
            )
            for row in rows
        )
        newest |= {row.error_id: row for row in rows}
    ErrorGroup.objects.bulk_create(
        ErrorGroup(
            pk=cause.group,
            type=cause.type,
            fingerprint=cause.fingerprint,
            version=cause.version,
            title=cause.title,
            count=count // GROUPS,
            first_seen=now - timedelta(hours=1),
            last_seen=newest[cause.group].finished,
            first_instance=newest[cause.group].uuid,
            last_instance=newest[cause.group].uuid,
        )
        for cause in causes
        if cause.group in newest
    )
    return ErrorGroup.objects.order_by("-last_seen").first().digits
