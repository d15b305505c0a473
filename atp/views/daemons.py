"""The daemons: how they are, and what each of their workers is doing."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.http import Http404

from .. import documents, overview
from ..conf import settings
from ..models import Daemon, LogRecord, Task
from ..modes import EXPLANATIONS, ORDERS, allowed
from ..web import permissions
from .base import Page

# Rows of the log, and Instances in hand, on a daemon's own page.
SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker as the last renewal told; ``since`` is when it began, or None while idle."""

    number: int
    pid: int
    type: str | None
    instance: UUID | None
    since: datetime | None
    is_paused: bool


@dataclass(frozen=True, kw_only=True)
class DaemonRow:
    """A Daemon with how it is at the time."""

    daemon: Daemon
    condition: str
    types: tuple[str, ...]
    workers: tuple[Worker, ...]

    @property
    def orders(self):
        """What it can be told, each with its explanation."""
        if self.condition == overview.LOST:
            return []
        return [(order, EXPLANATIONS[order]) for order in allowed(self.daemon.aim)]

    @property
    def told(self):
        """What it has been told and has not done yet, in words; None if there is nothing."""
        aim = self.daemon.aim
        if aim == self.daemon.mode:
            return None
        return next(order.label for order, (_, leads_to) in ORDERS.items() if leads_to == aim)

    @property
    def busy(self):
        return sum(worker.instance is not None and not worker.is_paused for worker in self.workers)

    @property
    def paused(self):
        return sum(worker.is_paused for worker in self.workers)


def daemon_row(daemon, now):
    document = documents.daemon(daemon, now)
    return DaemonRow(
        daemon=daemon,
        condition=document["condition"],
        types=tuple(document["types"]),
        workers=tuple(_worker(entry) for entry in document["workers"]),
    )


def daemon_rows(now):
    """All daemons, those longest running first."""
    return [daemon_row(daemon, now) for daemon in overview.daemons()]


def _worker(entry):
    return Worker(
        number=entry["worker"],
        pid=entry["pid"],
        type=entry["type"],
        instance=_read(UUID, entry["instance"]),
        since=_read(_time, entry["since"]),
        is_paused=entry["paused"],
    )


def _time(text):
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no offset")
    return time


def _read(kind, text):
    """What a daemon wrote as text; None for what is not there or cannot be read."""
    try:
        return kind(text)
    except (TypeError, ValueError, AttributeError):
        return None


class DaemonsPage(Page):
    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemons.html"

    def get(self, request):
        now = overview.now()
        return self.show(now=now, daemons=daemon_rows(now))


class DaemonPage(Page):
    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemon.html"

    def get(self, request, uuid):
        daemon = _find(uuid)
        now = overview.now()
        user = request.user
        return self.show(
            now=now,
            row=daemon_row(daemon, now),
            held=_held(daemon) if user.has_perm(permissions.VIEW_INSTANCE) else None,
            log=_log(daemon) if user.has_perm(permissions.VIEW_LOG) else None,
        )


def _find(uuid):
    found = _read(UUID, uuid)
    daemon = Daemon.objects.using(settings.DATABASE).filter(uuid=found).first() if found else None
    if daemon is None:
        raise Http404(f"There is no daemon {uuid}: it has left, or never was.")
    return daemon


def _held(daemon):
    tasks = Task.objects.using(settings.DATABASE).filter(daemon=daemon)
    return list(tasks.select_related("instance__type").order_by("pk")[:SHOWN])


def _log(daemon):
    records = LogRecord.objects.using(settings.DATABASE).about(f"daemon:{daemon}")
    return list(records.reverse()[:SHOWN])
