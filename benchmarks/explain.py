"""How long it takes to explain why something does not run, with very many that wait.

So many Instances of one Type wait, in some lanes, a daemon serves it, and a limit, a rate and a
gate are set. Explained are the first that waits, the last, one behind a thousand, the Type and a
lane; and the first causes of a page of a list. Each may take MOST_QUERIES queries, and in 95 of
100 cases MOST_MILLISECONDS; the exit status is 1 if one takes more.
"""

import itertools
import time
from datetime import timedelta
from uuid import uuid4

from .core import filling
from .core.database import vacuum
from .core.report import percentile

MOST_QUERIES, MOST_MILLISECONDS = 8, 50
PAST = 1_700_000_000
OTHER = "benchmarks.other"
PAGE = 50


def add_arguments(add):
    add("--waiting", type=int, default=1_000_000, help="Instances that wait")
    add("--lanes", type=int, default=10, help="lanes that they wait in")
    add("--repeat", type=int, default=30, help="explanations of each kind")


def run(options, report):
    from django.db import connection

    from atp import queue
    from atp.models import Instance, Type
    from atp.reports import overview
    from atp.reports.explaining.explain import main_causes

    queue.register_all()
    lanes = {"lanes": options.lanes, "collection": "lane" if options.lanes > 1 else ""}
    filling.fill_waiting(connection, OTHER, options.waiting, epoch=PAST, **lanes)
    _daemon()
    queue.limit(OTHER, max_running=1, rate="1/h")
    queue.hold(OTHER, until=timedelta(days=1))
    vacuum(connection)
    rows = Instance.objects.select_related("type").order_by("pk")
    first, last = rows.first(), rows.last()
    behind = rows[min(2_000, options.waiting - 1)]
    type = Type.objects.get(identifier=OTHER)
    page = list(rows.order_by("-pk")[:PAGE])
    cases = {
        "the first that waits": lambda: queue.explain(first.uuid),
        "one behind a thousand": lambda: queue.explain(behind.uuid),
        "the last that waits": lambda: queue.explain(last.uuid),
        "the Type": lambda: queue.explain(type),
        "a lane": lambda: queue.explain((OTHER, last.collection)),
        "a page of a list": lambda: main_causes(page, overview.now()),
    }
    for name, call in cases.items():
        _measure(name, call, options.repeat, connection, report)


def _measure(name, call, repeat, connection, report):
    """Make a call again and again, the first time for nothing, and keep how long it took."""
    call()
    seconds, count = [], itertools.count()
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        seconds.append(1000 * (time.perf_counter() - began))

    def counted(execute, *args):
        next(count)
        return execute(*args)

    with connection.execute_wrapper(counted):
        call()
    queries, slow = next(count), percentile(seconds, 0.95)
    report.row(name, seconds, unit="ms")
    report.row(f"{name}, queries", [queries], unit="")
    if queries > MOST_QUERIES or slow > MOST_MILLISECONDS:
        report.exceeded.append(f"{name}: {queries} queries, p95 {slow:.0f} ms")


def _daemon():
    """Let a daemon be there that serves the Type, as far as rows tell."""
    from atp.models import Daemon
    from atp.store import get_store

    now = get_store().now()
    Daemon.objects.create(
        uuid=uuid4(),
        host="benchmark",
        pid=1,
        version="1",
        types=[OTHER],
        lease_until=now + timedelta(days=1),
        started=now,
        seen=now,
    )
