"""How quick pages and API lists are on a long history: first page and thousandth.

A list may take 12 queries, and 150 ms of server time in 95 of 100 requests; the
exit status is 1 if one takes more. Requests go through Django's test client, with
a session in the database and a user who has permissions but is no superuser.
"""

import html
import itertools
import re
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from .core import history
from .core.database import vacuum
from .core.report import percentile

MOST_QUERIES = 12
MOST_MILLISECONDS = 150
ROWS = 50
PAGES, API = "/atp/", "/atp/api/"
_NEXT_LINK = re.compile(r'rel="next" href="([^"]*)"')


def add_arguments(add):
    add("--instances", type=int, default=1_000_000, help="Instances that have ended")
    add("--failing", type=float, default=0.05, help="share of them that FAILED")
    add("--waiting", type=int, default=20_000, help="Instances that wait, in front")
    add("--claimed", type=int, default=200, help="Instances that daemons hold")
    add("--pages", type=int, default=1000, help="number of the page far back")
    add("--repeat", type=int, default=30, help="requests for each page")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for: a list if ``rows`` are given, with ``size`` of them on a page."""

    name: str
    path: str
    query: dict = field(default_factory=dict)
    rows: object = None
    order: tuple = ()
    size: int = ROWS

    def __str__(self):
        said = (f"{name}={value}" for name, value in self.query.items())
        return " ".join([self.name, *said])


def run(options, report):
    from django.db import connection

    shape = history.Shape(
        ended=options.instances,
        failing=options.failing,
        waiting=options.waiting,
        claimed=options.claimed,
    )
    began = time.perf_counter()
    filled = history.fill(connection, shape)
    vacuum(connection)
    print(f"filled in {time.perf_counter() - began:.0f} s\n")
    print(f"{'':<60} {'page':>5} {'queries':>7} {'median':>7} {'p95':>7}  ms", flush=True)
    visitor = Visitor()
    walked = []
    for asked in _everything(filled):
        first = measure(visitor, asked, (1, None), options, report)
        far = _far_page(asked, options.pages)
        if far is not None:
            median = measure(visitor, asked, far, options, report)
            if not asked.query:
                walked.append((asked, median / first))
    print()
    for asked, ratio in walked:
        report.compare(f"the first page of {asked}", ratio)
    for asked, _ in walked:
        _walk(visitor, asked, options.pages)


# What is asked for


def _everything(filled):
    from atp.models import Instance, LogRecord

    for query in [{}, *_selections(filled)]:
        for name, path in (
            ("page instances", f"{PAGES}instances/"),
            ("API instances", f"{API}instances"),
        ):
            rows = _selected("InstanceFilter", Instance.objects.select_related("type"), query)
            yield Asked(name=name, path=path, query=query, rows=rows, order=("-id",))
    yield from _tasks()
    log = LogRecord.objects.filter(instance=filled.longest)
    of_longest = f"instances/{filled.longest}"
    for name, path, size in (
        ("page log", f"{PAGES}{of_longest}/log/", 200),
        ("API log", f"{API}{of_longest}/log", ROWS),
    ):
        yield Asked(name=name, path=path, rows=log, order=("id",), size=size)
    for name, path in (
        ("API types", f"{API}types"),
        ("API daemons", f"{API}daemons"),
        ("API instance", f"{API}{of_longest}"),
    ):
        yield Asked(name=name, path=path)


def _selections(filled):
    """Return queries by each filter singly, and by some together.

    Among them are values that are rare and lie deep, that nothing has, and that
    are common but never occur together.
    """
    from atp.states import Reason, State

    big, rare = history.BIGGEST, history.RARE_TYPE
    own, others = (history.COLLECTIONS[name][0] for name in (big, history.SECOND))
    rare_collection, rare_reason = history.RARE_COLLECTION, history.RARE_REASON
    states, reasons = [state.value for state in State], [reason.value for reason in Reason]
    uuids = [str(row)[:13] for row in (filled.newest, filled.longest, filled.oldest)]
    return [
        *_each(type=[big, history.UNFAILING, rare]),
        *_each(state=states),
        *_each(reason=reasons),
        *_each(collection=[own, rare_collection, "absent"]),
        *_each(identifier=[filled.longest.identifier, "absent"]),
        *_each(uuid=[str(filled.longest), *uuids, "00000000"]),
        *_each(type=[big], state=states),
        *_each(type=[history.UNFAILING], state=["FAILED"]),
        *_each(type=[rare], state=["FINISHED", "FAILED", "ACCEPTED"]),
        *_each(type=[big, rare], reason=["ERROR", "MISSED", rare_reason]),
        *_each(type=[big], collection=[own, others, rare_collection]),
        *_each(type=[rare], collection=[own]),
        *_each(state=states, collection=[own]),
        *_each(state=["ACCEPTED", "FINISHED", "FAILED"], collection=[rare_collection]),
        *_each(reason=["ERROR", "MISSED"], collection=[own]),
        *_each(type=[big], identifier=[filled.longest.identifier]),
        *_each(type=[big], state=["FINISHED", "FAILED"], collection=[others]),
    ]


def _each(**values):
    """Return a query for each combination of these values."""
    return [dict(zip(values, found, strict=True)) for found in itertools.product(*values.values())]


def _tasks():
    from atp.models import Task

    big = history.BIGGEST
    own = history.COLLECTIONS[big][0]
    for query in (
        {},
        *_each(type=[big, history.RARE_TYPE]),
        *_each(collection=[own, "absent"]),
        *_each(claimed=["true"]),
        *_each(type=[big], collection=[own]),
    ):
        yield Asked(
            name="API tasks",
            path=f"{API}tasks",
            query=query,
            rows=_selected("TaskFilter", Task.objects.all(), query),
            order=("type_id", "collection", "-priority", "due_at", "instance_id"),
        )


def _selected(filterset, rows, query):
    """Return the rows that pages and API select by this query."""
    from django.http import QueryDict

    from atp.web import filters

    data = QueryDict(mutable=True)
    data.update(query)
    return filters.bind_filters(getattr(filters, filterset), data, rows).qs


# How long it takes


def _far_page(asked, pages):
    """Return the number and the key of the page far back, or of the last if there are fewer.

    There is none if all rows fit on the first page. The key is made from the row
    before the page: to walk there would take as many requests.
    """
    from atp.reports import paging

    if asked.rows is None:
        return None
    rows = asked.rows.order_by(*asked.order)
    number = min(pages, -(-rows[: pages * asked.size].count() // asked.size))
    if number < 2:
        return None
    return number, paging.key_after(rows[(number - 1) * asked.size - 1], asked.order)


def measure(visitor, asked, page, options, report):
    """Ask for a page, a number and a key, again and again; return the median milliseconds."""
    number, key = page
    found = [visitor.get(asked, key) for _ in range(options.repeat)]
    milliseconds = [1000 * visit.seconds for visit in found]
    queries = max(visit.queries for visit in found)
    slow = percentile(milliseconds, 0.95)
    median = report.add(
        f"{asked}, page {number}", milliseconds, unit="ms", p95=slow, queries=queries
    )
    verdict = ""
    if queries > MOST_QUERIES or slow > MOST_MILLISECONDS:
        verdict = "  exceeded"
        report.exceeded.append(f"{asked}, page {number}: {queries} queries, p95 {slow:.0f} ms")
    line = f"{asked!s:<60} {number:>5} {queries:>7} {median:>7.1f} {slow:>7.1f}"
    print(line + verdict, flush=True)
    return median


def _walk(visitor, asked, pages):
    """Show that the links from page to page lead where the key of the page far back does."""
    number, key = _far_page(asked, pages)
    following, began = None, time.perf_counter()
    for _ in range(number - 1):
        following = _next_key(visitor.get(asked, following).response)
    assert following == key, f"{asked}: page {number} begins at {following}, not at {key}"
    took = time.perf_counter() - began
    print(f"{asked}: {number - 1} links lead to page {number} ({took:.0f} s)", flush=True)


def _next_key(response):
    """Return the key of the next page, as a page links to it or the API gives it."""
    if response["Content-Type"].startswith("text/html"):
        [link] = _NEXT_LINK.findall(response.content.decode())
    else:
        link = response.json()["next"]
    [key] = parse_qs(urlsplit(html.unescape(link)).query)["page"]
    return key


@dataclass(frozen=True, kw_only=True)
class Visit:
    """An answer, in how many seconds it came, and after how many queries."""

    response: object
    seconds: float
    queries: int


class Visitor:
    """Somebody who is logged in and may see everything."""

    def __init__(self):
        from django.contrib.auth.models import Permission, User
        from django.test import Client

        user = User.objects.create_user("visitor")
        own = Permission.objects.filter(content_type__app_label="atp", codename__startswith="view_")
        user.user_permissions.set(own)
        self._client = Client(SERVER_NAME="localhost")
        self._client.force_login(user)
        self._seen = set()

    def get(self, asked, key=None):
        """Ask for a page. Raises AssertionError unless it is there.

        The first visit of a path does not count: it loads code and templates.
        """
        if asked.path not in self._seen:
            self._seen.add(asked.path)
            self.get(asked, key)
        from django.db import connection

        count = itertools.count()

        def counted(execute, *args):
            next(count)
            return execute(*args)

        query = asked.query if key is None else asked.query | {"page": key}
        with connection.execute_wrapper(counted):
            began = time.perf_counter()
            response = self._client.get(asked.path, query)
            seconds = time.perf_counter() - began
        assert response.status_code == 200, f"{asked}: status {response.status_code}"
        return Visit(response=response, seconds=seconds, queries=next(count))
