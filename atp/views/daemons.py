"""The daemons: how they are, and what each of their workers is doing."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.http import Http404

from ..conf import settings
from ..models import Daemon, LogRecord, Task
from ..reports import documents, overview
from ..reports.deploys import releases
from ..verbs.table import DAEMON, VERBS
from ..web import permissions
from ..words.orders import ORDERS
from .base import Page

# Rows of the log, and Instances in hand, on a daemon's own page.
SHOWN = 100
# For so long daemons that have left are listed.
A_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker as the last renewal told; ``since`` is when it began, or None while idle.

    ``has_ended`` says that the Instance which it was at then is not the daemon's any more.
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
    """A Daemon with how it is at the time."""

    daemon: Daemon
    condition: str
    types: tuple[str, ...]
    workers: tuple[Worker, ...]

    @property
    def verbs(self):
        """The verbs that make a difference to it; none if it is lost."""
        if self.condition == overview.LOST:
            return []
        return [verb for verb in VERBS[DAEMON].values() if verb.is_allowed(self.daemon)]

    @property
    def told(self):
        """The order that it has not obeyed yet, in words; None if there is none."""
        aim = self.daemon.aim
        if aim == self.daemon.mode:
            return None
        return next(order.label for order, (_, leads_to) in ORDERS.items() if leads_to == aim)

    @property
    def busy(self):
        return sum(
            worker.instance is not None and not worker.is_paused and not worker.has_ended
            for worker in self.workers
        )

    @property
    def paused(self):
        return sum(worker.is_paused for worker in self.workers)


def daemon_row(daemon, now, held):
    """A daemon; ``held`` are pairs of what daemons hold: the daemon's key, the Instance's uuid."""
    document = documents.daemon(daemon, now)
    return DaemonRow(
        daemon=daemon,
        condition=document["condition"],
        types=tuple(document["types"]),
        workers=tuple(_worker(entry, daemon, held) for entry in document["workers"]),
    )


def daemon_rows(now):
    """All daemons, those longest running first."""
    daemons = overview.daemons()
    held = _held_by(daemons)
    return [daemon_row(daemon, now, held) for daemon in daemons]


def gone(now, rows):
    """The daemons that have left within a day, but for those that are back."""
    names = {str(row.daemon) for row in rows}
    return [each for each in overview.gone(since=now - A_DAY) if each.name not in names]


def _held_by(daemons):
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__in=[row.pk for row in daemons])
    return set(tasks.values_list("daemon", "instance__uuid"))


def _worker(entry, daemon, held):
    instance = _read(UUID, entry["instance"])
    return Worker(
        number=entry["worker"],
        pid=entry["pid"],
        type=entry["type"],
        instance=instance,
        has_ended=instance is not None and (daemon.pk, instance) not in held,
        since=_read(_time, entry["since"]),
        is_paused=entry["paused"],
    )


def _time(text):
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no offset")
    return time


def _read(kind, text):
    """Return the time that a daemon wrote as text; None if it is missing or cannot be read."""
    try:
        return kind(text)
    except (TypeError, ValueError, AttributeError):
        return None


class DaemonsPage(Page):
    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemons.html"

    def get(self, request):
        now = overview.now()
        rows = daemon_rows(now)
        return self.show(
            now=now,
            daemons=rows,
            releases=releases.releases([row.daemon for row in rows], now),
            gone=gone(now, rows),
        )


class DaemonPage(Page):
    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemon.html"

    def get(self, request, uuid):
        daemon = _find(uuid)
        user = request.user
        if isinstance(daemon, overview.Gone):
            return self.show(
                template="atp/daemon_gone.html",
                gone=daemon,
                log=_log(daemon.name) if user.has_perm(permissions.VIEW_LOG) else None,
            )
        now = overview.now()
        return self.show(
            now=now,
            row=daemon_row(daemon, now, _held_by([daemon])),
            held=_held(daemon) if user.has_perm(permissions.VIEW_INSTANCE) else None,
            log=_log(daemon) if user.has_perm(permissions.VIEW_LOG) else None,
        )


def _find(uuid):
    found = _read(UUID, uuid)
    daemon = Daemon.objects.using(settings.DATABASE).filter(uuid=found).first() if found else None
    if daemon is None and found and (left := overview.gone(found)):
        return left[0]
    if daemon is None:
        raise Http404(f"There is no daemon {uuid}: it has left, or never was.")
    return daemon


def _held(daemon):
    tasks = Task.objects.using(settings.DATABASE).filter(daemon=daemon)
    return list(tasks.select_related("instance__type").order_by("pk")[:SHOWN])


def _log(daemon):
    records = LogRecord.objects.using(settings.DATABASE).about(f"daemon:{daemon}")
    return list(records.reverse()[:SHOWN])
