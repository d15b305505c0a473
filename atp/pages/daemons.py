"""The pages for daemons, which show their condition and what their workers are doing."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

from ..commands import MODE_CHANGES
from ..conf import settings
from ..models import Daemon, LogRecord, Task
from ..operations.table import DAEMON, OPERATIONS
from ..reports import documents, overview, releases
from ..web import permissions
from ..web.permissions import EVERYTHING
from .base import Page

# The most log records, and the most Instances that a daemon holds, on its own page.
MAX_SHOWN = 100
# The list shows a daemon for this time after it has left.
A_DAY = timedelta(days=1)

Value = TypeVar("Value")
# Pairs: the key of a daemon, and the uuid of an Instance that it holds.
Held = Collection[tuple[int, UUID]]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process, as its daemon reported it at the last renewal of the daemon's lease.

    ``since`` is when the worker's attempt started, or None if the worker was idle. ``has_ended`` is
    True if the attempt has ended since the report. The worker is busy even then, because a daemon
    renews its lease at once when a worker becomes idle.
    """

    number: int
    pid: int
    type: str | None
    instance: UUID | None
    since: datetime | None
    is_paused: bool
    has_ended: bool = False


@dataclass(frozen=True, kw_only=True)
class DaemonRow:
    """A daemon with its workers and its condition at a given time: alive, late or lost."""

    daemon: Daemon
    condition: str
    types: tuple[str, ...]
    workers: tuple[Worker, ...]

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
    def busy(self) -> int:
        """The number of workers that run an attempt which is not paused."""
        return sum(worker.instance is not None and not worker.is_paused for worker in self.workers)

    @property
    def paused(self) -> int:
        """The number of workers whose attempt is paused."""
        return sum(worker.is_paused for worker in self.workers)


def daemon_row(daemon: Daemon, now: datetime, held: Held) -> DaemonRow:
    """Return the DaemonRow for a daemon. ``held`` lists the Instances that daemons hold."""
    document = documents.daemon(daemon, now)
    return DaemonRow(
        daemon=daemon,
        condition=document["condition"],
        types=tuple(document["types"]),
        workers=tuple(_read_worker(entry, daemon, held) for entry in document["workers"]),
    )


def daemon_rows(now: datetime) -> list[DaemonRow]:
    """Return a DaemonRow for each daemon; the one that has run longest comes first."""
    daemons = overview.daemons()
    held = _find_held(daemons)
    return [daemon_row(daemon, now, held) for daemon in daemons]


def departed_daemons(now: datetime, rows: Iterable[DaemonRow]) -> list[overview.DepartedDaemon]:
    """Return the daemons that left within the last day and are not among ``rows``."""
    names = {str(row.daemon) for row in rows}
    return [each for each in overview.departed_daemons(since=now - A_DAY) if each.name not in names]


def _find_held(daemons: Iterable[Daemon]) -> Held:
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__in=[row.pk for row in daemons])
    return set(tasks.values_list("daemon", "instance__uuid"))


def _read_worker(entry: dict[str, Any], daemon: Daemon, held: Held) -> Worker:
    instance = _parse_or_none(UUID, entry["instance"])
    return Worker(
        number=entry["worker"],
        pid=entry["pid"],
        type=entry["type"],
        instance=instance,
        has_ended=instance is not None and (daemon.pk, instance) not in held,
        since=_parse_or_none(_parse_time, entry["since"]),
        is_paused=entry["paused"],
    )


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no offset")
    return time


def _parse_or_none(parse: Callable[[str], Value], text: Any) -> Value | None:
    """Return ``parse(text)``, or None if the text is missing or invalid."""
    try:
        return parse(text)
    except (TypeError, ValueError, AttributeError):
        return None


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
            releases=releases.releases([row.daemon for row in rows], now),
            gone=departed_daemons(now, rows),
        )


class DaemonPage(Page):
    """The page for one daemon, which may have left already."""

    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemon.html"

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        self.check_unrestricted()
        daemon = _find_daemon(uuid)
        self.subject = EVERYTHING
        if isinstance(daemon, overview.DepartedDaemon):
            return self.show(
                template="atp/daemon_gone.html",
                gone=daemon,
                log=_find_log(daemon.name) if self.may(permissions.VIEW_LOG) else None,
            )
        now = overview.now()
        return self.show(
            now=now,
            row=daemon_row(daemon, now, _find_held([daemon])),
            held=self._visible_tasks(daemon),
            log=_find_log(daemon) if self.may(permissions.VIEW_LOG) else None,
        )

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
    parsed = _parse_or_none(UUID, uuid)
    daemon = Daemon.objects.using(settings.DATABASE).filter(uuid=parsed).first() if parsed else None
    if daemon is None and parsed and (left := overview.departed_daemons(parsed)):
        return left[0]
    if daemon is None:
        raise Http404(f"There is no daemon {uuid}: it has ended, or never existed.")
    return daemon


def _find_log(daemon: Daemon | str) -> list[LogRecord]:
    records = LogRecord.objects.using(settings.DATABASE).about(f"daemon:{daemon}")
    return list(records.reverse()[:MAX_SHOWN])
