"""How quick the pages of a big queue are behind gunicorn, and what open overviews cost.

A history of some Instances, Types and lanes, with what was counted for 90 days. A page may send
MOST_QUERIES queries, and take MOST_MILLISECONDS in 95 of 100 requests. The lists of jobs of OGC API
- Processes have only the limit of time, as the search of an operator reads the queue in portions.
What all viewers share is computed once in five seconds: the queries of such a request are printed
too, and have no limit. Last, some browsers hold the overview open. The benchmark prints how much of
a processor the sessions of the database use meanwhile. The exit status is 1 if a limit is exceeded.
"""

import asyncio
import itertools
import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf

import psutil

from .core import history, web
from .core.database import vacuum
from .core.report import percentile

MOST_QUERIES, MOST_MILLISECONDS = 12, 150
PAGES, JOBS = "/atp/", "/ogc/jobs"
# How the names of the pages of JOBS begin.
JOB_LISTS = "jobs"
LANE = "lane-7"
_ATP = {"OGC_LANE": f"{__name__}.lane"}
# Types that have work in each minute. The others have some in each hour.
BUSY = 50
MINUTES, HOURS = 2 * 24 * 60, 90 * 24
# The overview asks for itself again after so many seconds.
EVERY = 2
# How many browsers hold it open.
VIEWERS = (2, 10)
WARM_UP = 16
# What an open page sends, so that only its live part is drawn.
HEADERS = {"HX-Request": "true", "HX-Target": "live"}


def add_arguments(add):
    add("--instances", type=int, default=2_000_000, help="Instances that have ended")
    add("--types", type=int, default=500, help="Types")
    add("--lanes", type=int, default=200, help="lanes of the biggest Type")
    add("--waiting", type=int, default=20_000, help="Instances that wait, in front")
    add("--claimed", type=int, default=200, help="Instances that daemons hold")
    add("--repeat", type=int, default=100, help="requests for each page")
    add("--seconds", type=int, default=60, help="seconds for which overviews are open")


def run(options, report):
    from django.db import connection
    from django.test import override_settings

    began = time.perf_counter()
    filled = _fill(connection, options)
    vacuum(connection)
    print(f"filled in {time.perf_counter() - began:.0f} s\n", flush=True)
    _offer_biggest()
    operator, customer = _client("operator", "view_"), _client("customer")
    pages = {name: (f"{PAGES}{path}", operator) for name, path in _pages(filled).items()}
    for name, query in _queries_of_jobs().items():
        pages[f"{JOB_LISTS}, {name}"] = (f"{JOBS}{query}", customer)
        pages[f"{JOB_LISTS} of all, {name}"] = (f"{JOBS}{query}", operator)
    with override_settings(ATP=_ATP):
        queries = {name: _count_queries(connection, *page) for name, page in pages.items()}
    connection.close()
    with socket.socket() as found:
        found.bind((web.HOST, 0))
        port = found.getsockname()[1]
    with web.serving(web.gunicorn("demo_project", port), port, options.directory / "server.log"):
        print(f"{'':<32} {'fresh':>7} {'shared':>7} {'median':>7} {'p95':>7} {'longest':>8}  ms")
        for name, (path, client) in pages.items():
            times = asyncio.run(_ask(port, path, _cookie(client), options.repeat))
            _tell(report, name, queries[name], [1000 * seconds for seconds in times])
        print()
        for viewers in VIEWERS:
            share = _cost(connection, viewers, port, _cookie(operator), options.seconds)
            if share is not None:
                report.shares(f"{viewers} open overviews, of a processor", [share])


def _pages(filled):
    big = history.BIGGEST
    newest, longest = filled.newest.uuid, filled.longest.uuid
    return {
        "overview": "",
        "overview of a week": "?span=7d",
        "types": "types/",
        "type": f"types/{big}/",
        "type of a week": f"types/{big}/?span=7d",
        "instances": "instances/",
        "instances, failed": "instances/?state=FAILED",
        "instances of a type and a lane": f"instances/?type={big}&collection={LANE}",
        "instances with a long run": f"instances/?type={big}&longer_than=300",
        "instance": f"instances/{newest}/",
        "instance with a long log": f"instances/{longest}/",
        "activity": "activity/",
        "daemons": "daemons/",
        "failures": "failures/",
        "gate over everything": "gate/",
        "schedules": "schedules/",
        "downstreams": "downstreams/",
        "graphs": "graphs/",
    }


def _queries_of_jobs():
    """Return the queries of the list of jobs of OGC API - Processes."""
    day = datetime.now(UTC) - timedelta(days=10)
    return {
        "newest": "",
        "failed": "?status=failed",
        "running": "?status=running",
        "a process": f"?processID={history.BIGGEST}",
        "a day": f"?datetime={day:%Y-%m-%dT00:00:00Z}/{day:%Y-%m-%dT23:59:59Z}",
        "long": "?minDuration=300",
    }


# Requests


def _offer_biggest():
    """Let the servers offer the biggest Type, whose lanes the customer shares."""
    from atp import task_type

    from .tasks import noop

    os.environ["BENCHMARK_PUBLIC"] = history.BIGGEST
    os.environ["BENCHMARK_ATP"] = json.dumps(_ATP)
    task_type(history.BIGGEST, public=True)(noop)


def lane(request):
    """Return the collection whose jobs a customer sees."""
    return LANE


def _client(name, permissions=None):
    """Return a test client of a user with the permissions that begin so."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    user = User.objects.create_user(name)
    if permissions:
        own = Permission.objects.filter(content_type__app_label="atp")
        user.user_permissions.set(own.filter(codename__startswith=permissions))
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def _cookie(client):
    return "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())


def _count_queries(connection, path, client):
    """Return the queries of a page of which nothing is kept, and of the same page at once after."""
    _forget()
    return [_queries_of(connection, client, path) for _ in range(2)]


def _queries_of(connection, client, path):
    count = itertools.count()

    def counted(execute, *args):
        next(count)
        return execute(*args)

    with connection.execute_wrapper(counted):
        status = client.get(path).status_code
    # An earlier commit may not have the page.
    return next(count) if status == 200 else None


def _forget():
    """Let this process compute anew what all viewers share."""
    from atp.pages import base

    if hasattr(base, "shared"):
        base.shared.clear()


async def _ask(port, path, cookie, repeat):
    """Return the seconds of each request, one after another."""
    for _ in range(WARM_UP):
        await web.get(port, path, Cookie=cookie)
    return [(await web.get(port, path, Cookie=cookie)).seconds for _ in range(repeat)]


def _tell(report, name, queries, milliseconds):
    fresh, shared = queries
    if shared is None:
        return
    slow = percentile(milliseconds, 0.95)
    median = report.add(name, milliseconds, unit="ms", p95=slow, fresh=fresh, queries=shared)
    verdict = ""
    most_queries = inf if name.startswith(JOB_LISTS) else MOST_QUERIES
    if shared > most_queries or slow > MOST_MILLISECONDS:
        verdict = "  exceeded"
        report.exceeded.append(f"{name}: {shared} queries, p95 {slow:.0f} ms")
    line = (
        f"{name:<32} {fresh:>7} {shared:>7} {median:>7.1f} {slow:>7.1f} {max(milliseconds):>8.1f}"
    )
    print(line + verdict, flush=True)


# Open pages


def _cost(connection, viewers, port, cookie, seconds):
    """Return which part of a processor the database uses, or None if that cannot be seen."""
    if connection.vendor != "postgresql":
        return None
    server = _Server(connection)
    before = server.processor_time()
    asyncio.run(_hold_open(viewers, port, cookie, seconds))
    return (server.processor_time() - before) / seconds


async def _hold_open(viewers, port, cookie, seconds):
    async def view(number):
        end = time.monotonic() + seconds
        await asyncio.sleep(EVERY * number / viewers)
        while time.monotonic() < end:
            asked = time.monotonic()
            answer = await web.get(port, PAGES, Cookie=cookie, **HEADERS)
            if answer.status != 200:
                raise web.ServerError(f"The overview answers {answer.status}.")
            await asyncio.sleep(max(0, asked + EVERY - time.monotonic()))

    await asyncio.gather(*(view(number) for number in range(viewers)))


class _Server:
    """The processes of the PostgreSQL server, which runs on this host."""

    def __init__(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [pid] = cursor.fetchone()
        self._postmaster = psutil.Process(psutil.Process(pid).ppid())
        connection.close()

    def processor_time(self):
        """Return the seconds that a processor has worked for it, also for ended sessions."""
        own = self._postmaster.cpu_times()
        found = [own.user, own.system, own.children_user, own.children_system]
        for child in self._postmaster.children():
            with suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                found += [times.user, times.system]
        return sum(found)


# The queue


def _fill(connection, options):
    shape = history.Shape(
        ended=options.instances,
        waiting=options.waiting,
        claimed=options.claimed,
        types=options.types,
        lanes=options.lanes,
    )
    filled = history.fill(connection, shape)
    from atp import models

    names = list(models.Type.objects.order_by("pk").values_list("identifier", flat=True))
    _insert_all(connection, models.Statistic, _counts(60, MINUTES, names[:BUSY]))
    _insert_all(connection, models.Statistic, _counts(3600, HOURS, names))
    if hasattr(models, "Usage"):
        _insert_all(connection, models.Usage, _usage(models.Daemon.objects.all()))
    return filled


def _insert_all(connection, model, rows):
    while some := list(itertools.islice(rows, history.CHUNK)):
        history.insert(connection, model, some)


def _starts(span, periods):
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return (now - timedelta(seconds=span * number) for number in range(periods))


def _counts(span, periods, types):
    """Yield what daemons would have counted of these Types, and of all of them together."""
    from atp import models

    histogram = json.dumps([number % 7 for number in range(models.BUCKETS)])
    # An earlier commit may not count all Types together.
    together = [models.ALL_TYPES] if hasattr(models, "ALL_TYPES") else []
    zero = [name for name in _columns(models.Statistic) if name.startswith("failed_")]
    for start, type in itertools.product(_starts(span, periods), [*types, *together]):
        yield dict.fromkeys([*zero, "retried", "deferred", "lost"], 0) | {
            "span": span,
            "start": start,
            "type": type,
            "started": 10,
            "finished": 9,
            "failed_error": 1,
            "wall_us": 1_000_000,
            "wait": histogram,
            "run": histogram,
        }


def _usage(daemons):
    """Yield what these daemons would have written of their workers."""
    for start, row in itertools.product(_starts(60, MINUTES), daemons):
        yield {
            "span": 60,
            "start": start,
            "daemon": row.uuid,
            "name": f"{row.host}:{row.pid}",
            "capacity_us": 480_000_000,
            "busy_us": 300_000_000,
            "ended": 100,
            "memory": 500_000_000,
        }


def _columns(model):
    return [field.column for field in model._meta.concrete_fields]
