"""The pages for daemons, which show their condition and what their workers are doing.

The list of daemons can command all daemons of a host at once.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from .. import text
from ..commands import MODE_CHANGES
from ..conf import settings
from ..models import Daemon, LogRecord, Task
from ..operations.daemons import CommandedDaemons, command_all, find_daemons
from ..operations.table import DAEMON, OPERATIONS, DaemonOperation
from ..reports import documents, overview, releases
from ..reports.statistics import SPANS, UsagePoint, usage, utilisation_now
from ..web import permissions
from ..web.permissions import EVERYTHING
from . import charts
from .base import Page
from .operations import OperationPage

# The most log records, and the most Instances that a daemon holds, on its own page.
MAX_SHOWN = 100
# The list shows a daemon for this time after it has left.
A_DAY = timedelta(days=1)

# Pairs: the key of a daemon, and the uuid of an Instance that it holds.
Held = Collection[tuple[int, UUID]]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process, as its daemon reported it at the last renewal of the daemon's lease.

    ``since`` is when the worker's attempt started, or None if the worker was idle. ``has_ended`` is
    True if the attempt has ended since the report. The worker is busy even then, because a daemon
    renews its lease at once when a worker becomes idle. ``host`` is where an engine runs it.
    ``loop`` is the loop of which it is a place, or None, and ``blocks`` is for how long its attempt
    has blocked that loop.
    """

    number: int
    pid: int
    host: str | None
    type: str | None
    instance: UUID | None
    since: datetime | None
    is_paused: bool
    has_ended: bool = False
    loop: int | None = None
    blocks: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop of a daemon with the workers that are its places."""

    number: int
    places: tuple[Worker, ...]

    @property
    def pid(self) -> int:
        return self.places[0].pid

    @property
    def busy(self) -> int:
        """The number of places that run an attempt."""
        return sum(place.instance is not None for place in self.places)

    @property
    def blocking(self) -> Worker | None:
        """The place whose attempt blocks the loop, or None."""
        return next((place for place in self.places if place.blocks is not None), None)


@dataclass(frozen=True, kw_only=True)
class DaemonRow:
    """A daemon with its workers and its condition at a given time: alive, late or lost.

    ``utilisation`` is the busy part of its workers in its last complete minute, from 0 to 1, or
    None if it is unknown. ``engine`` says in words what runs its attempts, if an engine does;
    ``has_error`` is True if that cannot be reached.
    """

    daemon: Daemon
    condition: str
    types: tuple[str, ...]
    workers: tuple[Worker, ...]
    utilisation: float | None
    engine: str = ""
    has_error: bool = False

    @property
    def is_engine_away(self) -> bool:
        """True if the daemon is alive, but cannot reach the engine that runs its attempts."""
        return self.has_error and self.condition == overview.ALIVE

    @property
    def verbs(self) -> list[Any]:
        """The operations that the daemon allows now; an empty list if the daemon is lost."""
        if self.condition == overview.LOST:
            return []
        return [verb for verb in OPERATIONS[DAEMON].values() if verb.is_allowed(self.daemon)]

    @property
    def told(self) -> str | None:
        """The label of the command that the daemon has yet to carry out, or None."""
        aim = self.daemon.aim
        if aim == self.daemon.mode:
            return None
        return next(order.label for order, (_, leads_to) in MODE_CHANGES.items() if leads_to == aim)

    @property
    def loops(self) -> list[Loop]:
        """The loops, each with its places."""
        found: dict[int, list[Worker]] = {}
        for worker in self.workers:
            if worker.loop is not None:
                found.setdefault(worker.loop, []).append(worker)
        return [Loop(number=number, places=tuple(own)) for number, own in sorted(found.items())]

    @property
    def listed(self) -> list[Worker]:
        """The workers without the idle places of loops."""
        return [each for each in self.workers if each.loop is None or each.instance is not None]

    @property
    def busy(self) -> int:
        """The number of workers that run an attempt which is not paused."""
        return sum(worker.instance is not None and not worker.is_paused for worker in self.workers)

    @property
    def paused(self) -> int:
        """The number of workers whose attempt is paused."""
        return sum(worker.is_paused for worker in self.workers)


def daemon_row(
    daemon: Daemon, now: datetime, held: Held, utilisation: float | None = None
) -> DaemonRow:
    """Return the DaemonRow for a daemon. ``held`` lists the Instances that daemons hold."""
    document = documents.daemon(daemon, now)
    engine = document["engine"]
    return DaemonRow(
        daemon=daemon,
        condition=document["condition"],
        types=tuple(document["types"]),
        workers=tuple(_read_worker(entry, daemon, held) for entry in document["workers"]),
        utilisation=utilisation,
        engine=documents.describe_engine(engine) if engine else "",
        has_error=bool(engine and engine["error"]),
    )


def daemon_rows(now: datetime) -> list[DaemonRow]:
    """Return a DaemonRow for each daemon; the one that has run longest comes first."""
    daemons = overview.daemons()
    held, busy = _find_held(daemons), utilisation_now(now)
    return [daemon_row(daemon, now, held, busy.get(daemon.uuid)) for daemon in daemons]


def departed_daemons(now: datetime, rows: Iterable[DaemonRow]) -> list[overview.DepartedDaemon]:
    """Return the daemons that left within the last day and are not among ``rows``."""
    names = {str(row.daemon) for row in rows}
    return [each for each in overview.departed_daemons(since=now - A_DAY) if each.name not in names]


def _find_held(daemons: Iterable[Daemon]) -> Held:
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__in=[row.pk for row in daemons])
    return set(tasks.values_list("daemon", "instance__uuid"))


def _read_worker(entry: dict[str, Any], daemon: Daemon, held: Held) -> Worker:
    instance = _uuid_or_none(entry["instance"])
    return Worker(
        number=entry["worker"],
        pid=entry["pid"],
        host=entry["host"],
        type=entry["type"],
        instance=instance,
        has_ended=instance is not None and (daemon.pk, instance) not in held,
        since=documents.time_or_none(entry["since"]),
        is_paused=entry["paused"],
        loop=entry["loop"] if isinstance(entry["loop"], int) else None,
        blocks=timedelta(seconds=entry["blocks"]) if isinstance(entry["blocks"], float) else None,
    )


def _uuid_or_none(text: Any) -> UUID | None:
    try:
        return UUID(text)
    except (TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True, kw_only=True)
class HostRow:
    """A host with the number of its daemons.

    ``verbs`` are the operations that at least one of these daemons allows now.
    """

    name: str
    count: int
    verbs: tuple[DaemonOperation, ...]


def host_rows(rows: Iterable[DaemonRow]) -> list[HostRow]:
    """Return a HostRow for each host whose daemons allow an operation, sorted by name."""
    by_host: dict[str, list[DaemonRow]] = {}
    for row in rows:
        by_host.setdefault(row.daemon.host, []).append(row)
    hosts = []
    for name, found in sorted(by_host.items()):
        allowed = [verb for row in found for verb in row.verbs]
        verbs = tuple(verb for verb in OPERATIONS[DAEMON].values() if verb in allowed)
        if verbs:
            hosts.append(HostRow(name=name, count=len(found), verbs=verbs))
    return hosts


class DaemonsPage(Page):
    """The page that lists all daemons, including those that left within the last day."""

    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemons.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        self.check_unrestricted()
        now = overview.now()
        rows = daemon_rows(now)
        return self.show(
            now=now,
            daemons=rows,
            hosts=host_rows(rows),
            releases=releases.releases([row.daemon for row in rows], now),
            gone=departed_daemons(now, rows),
        )


class DaemonPage(Page):
    """The page for one daemon, which may have left already."""

    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemon.html"
    parameters = ("span",)

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        self.check_unrestricted()
        daemon, now = _find_daemon(uuid), overview.now()
        self.subject = EVERYTHING
        # The part of the page that refreshes itself most often has neither charts nor log.
        history = {} if self.request.htmx.target == "live" else self._history(daemon, now)
        if isinstance(daemon, overview.DepartedDaemon):
            return self.show(template="atp/daemon_gone.html", gone=daemon, **history)
        busy = utilisation_now(now).get(daemon.uuid)
        return self.show(
            now=now,
            row=daemon_row(daemon, now, _find_held([daemon]), busy),
            held=self._visible_tasks(daemon),
            **history,
        )

    def _history(self, daemon: Daemon | overview.DepartedDaemon, now: datetime) -> dict[str, Any]:
        """Return what the page shows of the past: the charts and the log."""
        span = charts.span_of(self.request.GET)
        name = daemon.name if isinstance(daemon, overview.DepartedDaemon) else daemon
        return {
            "spans": SPANS,
            "span": span,
            "charts": usage_charts(usage(SPANS[span], now, daemon=daemon.uuid)),
            "log": _find_log(name) if self.may(permissions.VIEW_LOG) else None,
        }

    def _visible_tasks(self, daemon: Daemon) -> list[Task] | None:
        """Return those Tasks of the daemon whose Instances the user may see.

        Return None if the user lacks the permission to see Instances.
        """
        if permissions.missing_permissions(self.request.user, [permissions.VIEW_INSTANCE]):
            return None
        held = Task.objects.using(settings.DATABASE).filter(daemon=daemon)
        tasks = self.narrow_rows(held, permissions.VIEW_INSTANCE)
        return list(tasks.select_related("instance__type").order_by("pk")[:MAX_SHOWN])


def _find_daemon(uuid: str) -> Daemon | overview.DepartedDaemon:
    """Return the daemon, or its DepartedDaemon if it has left. Raises Http404 if unknown."""
    parsed = _uuid_or_none(uuid)
    daemon = Daemon.objects.using(settings.DATABASE).filter(uuid=parsed).first() if parsed else None
    if daemon is None and parsed and (left := overview.departed_daemons(parsed)):
        return left[0]
    if daemon is None:
        raise Http404(f"There is no daemon {uuid}: it has ended, or never existed.")
    return daemon


def _find_log(daemon: Daemon | str) -> list[LogRecord]:
    records = LogRecord.objects.using(settings.DATABASE).about(f"daemon:{daemon}")
    return list(records.reverse()[:MAX_SHOWN])


# The charts of what a daemon's workers did.

_MIB = 1024.0**2


def usage_charts(points: Sequence[UsagePoint]) -> list[charts.Chart]:
    """Draw the utilisation of a daemon's workers, the attempts that ended, and the memory."""
    return [charts.utilisation_chart(points), _ended_chart(points), _memory_chart(points)]


def _ended_chart(points: Sequence[UsagePoint]) -> charts.Chart:
    # A daemon writes a minute when that is over: until then its numbers are unknown.
    rates = [60 * point.ended / point.seconds if point.capacity else None for point in points]
    measure = charts.Measure(
        name="ended",
        phrase="{} ended",
        css="finished",
        values=tuple(rates),
        words=tuple(text.number(point.ended) if point.capacity else "" for point in points),
    )
    scale = charts.linear_scale(max((rate for rate in rates if rate), default=0.0))
    layers = charts.stack_bars(points, (measure,), scale)
    return charts.chart("ended", "bars", "Attempts ended per minute", points, layers, scale, ())


def _memory_chart(points: Sequence[UsagePoint]) -> charts.Chart:
    sizes = [point.memory / _MIB or None for point in points]
    measure = charts.Measure(
        name="memory",
        phrase="{}",
        css="scheduled",
        values=tuple(sizes),
        words=tuple(text.size(point.memory) if point.memory else "" for point in points),
    )
    round_scale = charts.linear_scale(max((size for size in sizes if size), default=0.0))
    scale = replace(round_scale, words=lambda size: text.size(size * _MIB))
    layers = (charts.draw_line(measure, scale),)
    return charts.chart("memory", "lines", "Memory of the workers", points, layers, scale, ())


# Commands to all daemons of a host.


class HostOperationPage(OperationPage):
    """The page for an operation on all daemons of the host that the query string names."""

    kind = DAEMON
    model = Daemon
    view_permission = permissions.VIEW_DAEMON
    parameters = ("host",)

    @property
    def verb(self) -> DaemonOperation:
        """The operation on a daemon, made one on a host. Raises Http404 if there is none."""
        one: DaemonOperation = super().verb
        return replace(
            one,
            call=lambda host, by: command_all(one.order, host=host, by=by),
            told=lambda host, commanded: _describe_commanded(one, commanded),
        )

    def find(self) -> str:
        self.check_unrestricted()
        host = self.request.GET.get("host", "")
        find_daemons(host)
        return host

    def page_to_return_to(self) -> str:
        return reverse("atp:daemons")

    def heading(self, subject: str) -> str:
        names = [str(row) for row in find_daemons(subject)]
        return f"all daemons on host {subject} ({', '.join(names)})"


def _describe_commanded(operation: DaemonOperation, commanded: CommandedDaemons) -> str:
    names = ", ".join(map(str, commanded.told)) or "No daemon"
    verb = "have" if len(commanded.told) > 1 else "has"
    sentences = [f"{names} {verb} been told to {operation.order.label}."]
    return " ".join([*sentences, *(why for _, why in commanded.left_alone)])
