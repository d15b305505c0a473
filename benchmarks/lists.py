"""How quick pages and API lists are on a long history: first page and thousandth.

A list may take 12 queries, and 150 ms of server time in 95 of 100 requests; the
exit status is 1 if one takes more. Requests go through Django's test client, with
a session in the database and a user who has permissions but is no superuser.
"""

import html
import itertools
import re
import time
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from .core import history
from .core.report import percentile

MOST_QUERIES = 12
MOST_MILLISECONDS = 150
PAGES, API = "/atp/", "/atp/api/"
_NEXT_LINK = re.compile(r'rel="next" href="([^"]*)"')


def add_arguments(add):
    add("--instances", type=int, default=1_000_000, help="that have ended (1000000)")
    add("--failing", type=float, default=0.05, help="share of them that FAILED (0.05)")
    add("--waiting", type=int, default=20_000, help="Instances that wait, in front (20000)")
    add("--claimed", type=int, default=200, help="Instances that daemons hold (200)")
    add("--pages", type=int, default=1000, help="number of the page far back (1000)")
    add("--repeat", type=int, default=30, help="requests of each page (30)")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A list to be measured; ``rows`` and ``order`` are given where it has several pages."""

    name: str
    path: str
    query: dict
    size: int = 0
    rows: object = None
    order: tuple = ()


def run(options, report):
    from django.db import connection

    shape = history.Shape(
        ended=options.instances,
        failing=options.failing,
        waiting=options.waiting,
        claimed=options.claimed,
        logged=min(100_000, options.instances),
    )
    began = time.perf_counter()
    filled = history.fill(connection, shape)
    history.settle(connection)
    print(f"filled in {time.perf_counter() - began:.0f} s\n", flush=True)
    visitor = _Visitor()
    lists = [*_lists(filled)]
    print(f"{'':<52} {'page':>5} {'queries':>7} {'median':>7} {'p95':>7}  ms")
    ratios = []
    for asked in lists:
        first = _measure(visitor, asked, None, 1, options, report)
        number, key = _far_page(asked, options.pages)
        if key is not None:
            far = _measure(visitor, asked, key, number, options, report)
            ratios.append(far / first)
    if ratios:
        report.compare("the first page (the worst list)", max(ratios))
    for asked in (lists[0], *(asked for asked in lists if asked.name == "API instances")):
        _walk(visitor, asked, options.pages)


def _lists(filled):
    """Give everything that is to be measured; the page of all Instances first."""
    from atp.models import Instance, LogRecord, Task
    from atp.states import Reason, State
    from atp.web.filters import InstanceFilter, TaskFilter

    big, other = history.BIGGEST, history.SECOND
    own, others = history.COLLECTIONS[big][0], history.COLLECTIONS[other][0]
    selections = [
        {},
        *({"type": type} for type in (big, history.UNFAILING, history.RARE_TYPE)),
        *({"state": state.value} for state in State),
        *({"reason": reason.value} for reason in Reason),
        *({"collection": name} for name in (own, history.RARE_COLLECTION, "absent")),
        *({"identifier": name} for name in (filled.longest.identifier, "absent")),
        *({"uuid": str(row)[:13]} for row in (filled.newest, filled.longest, filled.oldest)),
        {"uuid": "00000000"},
        *({"type": big, "state": state.value} for state in State),
        {"type": history.UNFAILING, "state": "FAILED"},
        {"type": history.RARE_TYPE, "state": "FINISHED"},
        {"type": history.RARE_TYPE, "state": "FAILED"},
        {"type": history.RARE_TYPE, "state": "ACCEPTED"},
        *({"type": big, "reason": name} for name in ("ERROR", "MISSED", history.RARE_REASON)),
        {"type": history.RARE_TYPE, "reason": "ERROR"},
        *({"type": big, "collection": name} for name in (own, others, history.RARE_COLLECTION)),
        {"type": history.RARE_TYPE, "collection": own},
        *({"state": state.value, "collection": own} for state in State),
        {"state": "FAILED", "collection": history.RARE_COLLECTION},
        {"state": "ACCEPTED", "collection": history.RARE_COLLECTION},
        {"reason": "MISSED", "collection": own},
        {"type": big, "identifier": filled.longest.identifier},
        {"type": big, "state": "FAILED", "collection": others},
    ]
    for base, prefix in ((PAGES, "page"), (API, "API")):
        for query in selections:
            yield _paged(
                f"{prefix} instances",
                f"{base}instances{'/' if base == PAGES else ''}",
                query,
                InstanceFilter,
                Instance.objects.select_related("type"),
                ("-id",),
                50,
            )
    order = ("type_id", "-priority", "due_at", "instance_id")
    for query in ({}, {"type": big}, {"collection": own}, {"claimed": "true"}):
        yield _paged("API tasks", f"{API}tasks", query, TaskFilter, Task.objects, order, 50)
    log = LogRecord.objects.filter(instance=filled.longest)
    for name, path, size in (
        ("page log", f"{PAGES}instances/{filled.longest}/log/", 200),
        ("API log", f"{API}instances/{filled.longest}/log", 50),
    ):
        yield Asked(name=name, path=path, query={}, rows=log, order=("id",), size=size)
    for name, path in (
        ("page overview", PAGES),
        ("page types", f"{PAGES}types/"),
        ("page type", f"{PAGES}types/{big}/"),
        ("page daemons", f"{PAGES}daemons/"),
        ("page instance", f"{PAGES}instances/{filled.newest}/"),
        ("page instance with a long log", f"{PAGES}instances/{filled.longest}/"),
        ("API types", f"{API}types"),
        ("API daemons", f"{API}daemons"),
        ("API instance", f"{API}instances/{filled.longest}"),
    ):
        yield Asked(name=name, path=path, query={})


def _paged(name, path, query, filterset, rows, order, size):
    from django.http import QueryDict

    data = QueryDict(mutable=True)
    data.update(query)
    selected = filterset(data=data, queryset=rows)
    assert selected.is_valid(), selected.errors
    said = " ".join(f"{name}={value}" for name, value in query.items())
    return Asked(
        name=f"{name} {said}".strip(),
        path=path,
        query=query,
        rows=selected.qs,
        order=order,
        size=size,
    )


def _far_page(asked, pages):
    """Return the number and the key of the page far back, or of the last if there are fewer.

    The key is made from the row before it: to walk there takes as many requests.
    """
    from atp import paging

    if asked.rows is None:
        return 1, None
    rows = asked.rows.order_by(*asked.order)
    number = min(pages, -(-rows[: pages * asked.size].count() // asked.size))
    if number < 2:
        return 1, None
    return number, paging.key_after(rows[(number - 1) * asked.size - 1], asked.order)


def _measure(visitor, asked, key, number, options, report):
    """Ask for one page again and again; return the median in milliseconds."""
    query = asked.query if key is None else asked.query | {"page": key}
    found = [visitor.get(asked.path, query) for _ in range(options.repeat)]
    milliseconds = [1000 * visit.seconds for visit in found]
    queries = max(visit.queries for visit in found)
    slow = percentile(milliseconds, 0.95)
    figure = f"{asked.name}, page {number}"
    median = report.add(figure, milliseconds, unit="ms", p95=slow, queries=queries)
    verdict = ""
    if queries > MOST_QUERIES or slow > MOST_MILLISECONDS:
        verdict = "  EXCEEDED"
        report.exceeded.append(f"{figure}: {queries} queries, p95 {slow:.0f} ms")
    print(
        f"{asked.name:<52} {number:>5} {queries:>7} {median:>7.1f} {slow:>7.1f}{verdict}",
        flush=True,
    )
    return median


def _walk(visitor, asked, pages):
    """Show that the links from page to page lead where the key of the far page does."""
    number, key = _far_page(asked, pages)
    if key is None:
        return
    query, took = asked.query, time.perf_counter()
    for _ in range(number - 1):
        following = _next_key(visitor.get(asked.path, query).response)
        query = asked.query | {"page": following}
    assert following == key, f"{asked.name}: page {number} begins at {following}, not {key}"
    took = time.perf_counter() - took
    print(f"{asked.name}: {number - 1} links lead to page {number} ({took:.0f} s)", flush=True)


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


class _Visitor:
    """Somebody who is logged in and may see everything."""

    def __init__(self):
        from django.contrib.auth.models import Permission, User
        from django.test import Client

        user = User.objects.create_user("visitor")
        own = Permission.objects.filter(content_type__app_label="atp", codename__startswith="view_")
        user.user_permissions.set(own)
        self._client = Client(SERVER_NAME="localhost")
        self._client.force_login(user)

    def get(self, path, query):
        """Ask for a page; raises AssertionError unless it is there."""
        from django.db import connection

        count = itertools.count()

        def counted(execute, *args):
            next(count)
            return execute(*args)

        with connection.execute_wrapper(counted):
            began = time.perf_counter()
            response = self._client.get(path, query)
            seconds = time.perf_counter() - began
        assert response.status_code == 200, f"{path} {query}: {response.status_code}"
        return Visit(response=response, seconds=seconds, queries=next(count))
