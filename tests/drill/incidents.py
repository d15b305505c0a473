"""The twelve incidents of the drill."""

import time
from datetime import timedelta
from typing import Any, ClassVar

from django.db import DatabaseError, connection

from atp import queue
from atp.commands import Mode
from atp.downstreams.protection import State as Breaker
from atp.models import Limit, Slot, Task
from atp.schedules.models import Outcome
from atp.store import get_store
from tests.helpers import DEADLINE, wait_for

from . import NEXT_RELEASE
from .kinds import DECODE, INGEST, INVOICE, MAIL, MOSAIC, NEWSLETTER, PAY, THUMBNAIL, WARP
from .site import (
    BY,
    DAEMONS,
    SCHEDULE,
    Site,
    cancel_all,
    count_waiting,
    enqueue,
    has_failed,
    is_shut,
    living_daemons,
)
from .tasks import CORRUPT, HUGE, PAYMENTS, TAX, UNTAXED, fault

# Failures have stopped if there was none for this long.
QUIET = timedelta(seconds=20)


class Incident:
    """Something that goes wrong; ``name`` says what, and ``whom`` it affects.

    ``since`` is when it began, by the clock of the database.
    """

    name: ClassVar[str]
    whom: ClassVar[str]

    def __init__(self, rows: int) -> None:
        """Prepare the incident for a history of this many Instances."""
        self.rows = rows
        self.since = get_store().now()

    def begin(self, site: Site) -> None:
        """Let it happen."""
        raise NotImplementedError

    def is_mended(self, site: Site) -> bool:
        """Return True if an operator has mended it, or has stopped the damage."""
        raise NotImplementedError

    def end(self, site: Site) -> None:
        """Remove what it has left, after the load is normal and before the site is restored."""


class Failures(Incident):
    """An incident with attempts of one lane that fail, until nobody starts any."""

    lane: ClassVar[tuple[str, str]]

    def is_mended(self, site: Site) -> bool:
        now = get_store().now()
        return now > self.since + QUIET and not has_failed(*self.lane, since=now - QUIET)


class FailingTenant(Failures):
    name = "The handler of one tenant raises."
    whom = f"invoices of the tenant {UNTAXED}, which has no tax rate"
    lane = INVOICE.type, UNTAXED

    def begin(self, site: Site) -> None:
        fault(TAX).touch()
        site.load.extra = lambda: enqueue(INVOICE, UNTAXED)

    def end(self, site: Site) -> None:
        fault(TAX).unlink()


class MemoryKills(Failures):
    name = "Tasks are killed, because they need too much memory."
    whom = f"{WARP.type} of landsat-9"
    lane = WARP.type, "landsat-9"

    def begin(self, site: Site) -> None:
        def enlarge() -> None:
            if count_waiting(*self.lane) < 2:
                enqueue(WARP, "landsat-9", pixels=HUGE)

        site.load.extra = enlarge

    def end(self, site: Site) -> None:
        cancel_all(WARP.type)


class ServiceTimesOut(Incident):
    name = "A service does not answer in time."
    whom = "payments of all tenants"
    # The operators of the service mend it after this time.
    lasts = timedelta(minutes=3)

    def begin(self, site: Site) -> None:
        fault(PAYMENTS).touch()
        site.load.extra = lambda: enqueue(PAY)

    def is_mended(self, site: Site) -> bool:
        if get_store().now() > self.since + self.lasts:
            fault(PAYMENTS).unlink(missing_ok=True)
        is_open = queue.get_downstream("payments").state in (Breaker.OPEN, Breaker.HALF_OPEN)
        return is_shut(PAY.type) or not (fault(PAYMENTS).exists() or is_open)

    def end(self, site: Site) -> None:
        fault(PAYMENTS).unlink(missing_ok=True)


class LostDaemon(Incident):
    name = "A daemon was killed."
    whom = "everybody: half of the workers are missing"

    def begin(self, site: Site) -> None:
        self._lost = site.daemons.pop()
        self._lost.destroy()

    def is_mended(self, site: Site) -> bool:
        running = [each for each in living_daemons() if each.aim == Mode.RUNNING]
        return len([each for each in running if each.pid != self._lost.pid]) >= DAEMONS


class Flood(Incident):
    name = "One tenant has enqueued very many tasks."
    whom = f"{THUMBNAIL.type} of the tenant corvus, which delays {THUMBNAIL.type} of others"
    lane = THUMBNAIL.type, "corvus"

    def begin(self, site: Site) -> None:
        self._count = min(50_000, self.rows // 4)
        type = queue.declared(THUMBNAIL.type).using(collection="corvus", created_by="corvus")
        type.enqueue_many({"order": number} for number in range(self._count))

    def is_mended(self, site: Site) -> bool:
        limited = Limit.objects.filter(type__identifier=THUMBNAIL.type, since__gte=self.since)
        is_short = count_waiting(*self.lane) < self._count // 10
        return is_short or is_shut(*self.lane) or limited.exists()

    def end(self, site: Site) -> None:
        queue.drop(*self.lane, by=BY)
        # Daemons drop some hundred tasks a second.
        wait_for(lambda: not count_waiting(*self.lane), 5 * DEADLINE, what="an empty lane")


class Poison(Failures):
    name = "Some inputs kill their workers."
    whom = f"{DECODE.type} of sentinel-2, with the scenes {', '.join(CORRUPT)}"
    lane = DECODE.type, "sentinel-2"

    def begin(self, site: Site) -> None:
        for scene in CORRUPT:
            enqueue(DECODE, "sentinel-2", scene=scene)

    def end(self, site: Site) -> None:
        cancel_all(DECODE.type)


class RemovedType(Incident):
    name = "A deploy has removed a Type, of which work is due."
    whom = f"{NEWSLETTER.type} of all tenants: no daemon of release {NEXT_RELEASE} serves it"

    def begin(self, site: Site) -> None:
        site.stop_daemons()
        site.start_daemons(NEXT_RELEASE)
        enqueue(NEWSLETTER)
        site.load.extra = lambda: enqueue(NEWSLETTER)

    def is_mended(self, site: Site) -> bool:
        is_served = any(NEWSLETTER.type in daemon.types for daemon in living_daemons())
        return is_served or is_shut(NEWSLETTER.type) or not count_waiting(NEWSLETTER.type)

    def end(self, site: Site) -> None:
        site.stop_daemons()


class MissedSlots(Incident):
    name = "A schedule has missed slots, because no daemon ran."
    whom = f"the schedule {SCHEDULE}"
    # The daemons are away for this many seconds.
    away = 50.0

    def begin(self, site: Site) -> None:
        site.stop_daemons()
        time.sleep(self.away)
        site.start_daemons()
        wait_for(self._missed().exists, what="missed slots")

    def is_mended(self, site: Site) -> bool:
        return not self._missed().exists()

    def end(self, site: Site) -> None:
        if self._missed().exists():
            queue.backfill_schedule(SCHEDULE, self.since - timedelta(minutes=1), by=BY)

    def _missed(self) -> Any:
        missed = Slot.objects.filter(outcome=Outcome.MISSED, at__gt=self.since - QUIET)
        return missed.filter(schedule__identifier=SCHEDULE)


class ForgottenHold(Incident):
    name = "Somebody has forgotten a hold."
    whom = f"{MAIL.type} of all tenants, held by ines"

    def begin(self, site: Site) -> None:
        queue.hold(MAIL.type, reason="until the new mail server runs", by="ines via shell")

    def is_mended(self, site: Site) -> bool:
        return not is_shut(MAIL.type)


class LowLimit(Incident):
    name = "A limit is too low."
    whom = f"{INGEST.type} of all missions, limited by jonas"
    rate = "2/m"

    def begin(self, site: Site) -> None:
        queue.limit(INGEST.type, rate=self.rate, by="jonas via pages")
        site.load.extra = lambda: enqueue(INGEST)

    def is_mended(self, site: Site) -> bool:
        return not Limit.objects.filter(type__identifier=INGEST.type, rate=self.rate).exists()


class LongRun(Incident):
    name = "One task runs for far too long."
    whom = f"one {MOSAIC.type} of sentinel-1"

    def begin(self, site: Site) -> None:
        type = queue.declared(MOSAIC.type).using(collection="sentinel-1", created_by="the archive")
        self._instance = type.enqueue(scene="20261128T093021_T32TPT", tiles=4_000)

    def is_mended(self, site: Site) -> bool:
        return not Task.objects.filter(pk=self._instance.pk).exists()

    def end(self, site: Site) -> None:
        cancel_all(MOSAIC.type)


class Lock(Incident):
    name = "A session holds a lock on the queue's table."
    whom = "everybody: nothing is enqueued, started or recorded"

    def begin(self, site: Site) -> None:
        # As CREATE INDEX locks it: reads go on, writes wait.
        self._session = connection.copy()
        self._session.set_autocommit(False)
        with self._session.cursor() as cursor:
            cursor.execute("SET application_name = 'psql'")
            cursor.execute("SELECT pg_backend_pid()")
            [self._pid] = cursor.fetchone()
            cursor.execute(f"LOCK TABLE {Task._meta.db_table} IN SHARE MODE")

    def is_mended(self, site: Site) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [self._pid])
            return cursor.fetchone() is None

    def end(self, site: Site) -> None:
        try:
            self._session.close()
        except DatabaseError:
            pass  # an operator has ended it


INCIDENTS: tuple[type[Incident], ...] = (
    *(FailingTenant, MemoryKills, ServiceTimesOut, LostDaemon, Flood, Poison),
    *(RemovedType, MissedSlots, ForgottenHold, LowLimit, LongRun, Lock),
)
