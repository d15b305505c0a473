"""The pages of the daemons: their condition, and the work of each of their workers."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.http import Http404

from ..commands import ORDERS
from ..conf import settings
from ..models import Daemon, LogRecord, Task
from ..operations.table import DAEMON, VERBS
from ..reports import documents, overview, releases
from ..web import permissions
from ..web.permissions import EVERYTHING
from .base import Page

# The most log records, and the most Instances that it holds, on a daemon's own page.
SHOWN = 100
# The time for which a daemon that has left is listed.
A_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker, as its daemon reported it at the last renewal.

    ``since`` is when its attempt started, None if it was idle. ``has_ended`` tells that the
    attempt has ended since then. The worker is busy all the same: a daemon renews at once when
    a worker has nothing more to do.
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
    """A daemon with its condition at a time: alive, late or lost."""

    daemon: Daemon
    condition: str
    types: tuple[str, ...]
    workers: tuple[Worker, ...]

    @property
    def verbs(self):
        """The verbs that the daemon allows now; none if it is lost."""
        if self.condition == overview.LOST:
            return []
        return [verb for verb in VERBS[DAEMON].values() if verb.is_allowed(self.daemon)]

    @property
    def told(self):
        """The label of the order that the daemon has not obeyed yet; None if there is none."""
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


def daemon_row(daemon, now, held):
    """Return the row of a daemon. ``held`` are pairs: a daemon's key, the uuid that it holds."""
    document = documents.daemon(daemon, now)
    return DaemonRow(
        daemon=daemon,
        condition=document["condition"],
        types=tuple(document["types"]),
        workers=tuple(_worker(entry, daemon, held) for entry in document["workers"]),
    )


def daemon_rows(now):
    """Return the rows of all daemons, those longest running first."""
    daemons = overview.daemons()
    held = _held_by(daemons)
    return [daemon_row(daemon, now, held) for daemon in daemons]


def gone(now, rows):
    """Return the daemons that have left within a day, without those that are back."""
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
    """Return ``kind(text)``, a time or uuid; None if the text is missing or cannot be read."""
    try:
        return kind(text)
    except (TypeError, ValueError, AttributeError):
        return None


class DaemonsPage(Page):
    permissions = (permissions.VIEW_DAEMON,)
    template_name = "atp/daemons.html"

    def get(self, request):
        self.check_unrestricted()
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
        self.check_unrestricted()
        daemon = _find(uuid)
        self.subject = EVERYTHING
        if isinstance(daemon, overview.Gone):
            return self.show(
                template="atp/daemon_gone.html",
                gone=daemon,
                log=_log(daemon.name) if self.may(permissions.VIEW_LOG) else None,
            )
        now = overview.now()
        return self.show(
            now=now,
            row=daemon_row(daemon, now, _held_by([daemon])),
            held=self._held(daemon),
            log=_log(daemon) if self.may(permissions.VIEW_LOG) else None,
        )

    def _held(self, daemon):
        """Return the Tasks that the daemon holds, as far as the user may see their Instances."""
        if permissions.lacking(self.request.user, [permissions.VIEW_INSTANCE]):
            return None
        tasks = Task.objects.using(settings.DATABASE).filter(daemon=daemon)
        tasks = self.narrowed(tasks, permissions.VIEW_INSTANCE)
        return list(tasks.select_related("instance__type").order_by("pk")[:SHOWN])


def _find(uuid):
    found = _read(UUID, uuid)
    daemon = Daemon.objects.using(settings.DATABASE).filter(uuid=found).first() if found else None
    if daemon is None and found and (left := overview.gone(found)):
        return left[0]
    if daemon is None:
        raise Http404(f"There is no daemon {uuid}: it has left, or never was.")
    return daemon


def _log(daemon):
    records = LogRecord.objects.using(settings.DATABASE).about(f"daemon:{daemon}")
    return list(records.reverse()[:SHOWN])
