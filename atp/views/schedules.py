"""The pages of schedules: their next runs, and the outcomes of their slots."""

from datetime import UTC, datetime

from .. import queue
from ..conf import settings
from ..models import Instance, LogRecord, Schedule, Slot
from ..reports import overview
from ..reports import schedules as reports
from ..verbs.registry import is_enqueueable, registry
from ..verbs.table import SCHEDULE, VERBS
from ..web import permissions
from .base import Page
from .bodies import shown_inputs

# The most slots in the strip and in the table, log records, and next runs.
STRIP, SLOTS, LOG, UPCOMING = 200, 50, 50, 10


class SchedulesPage(Page):
    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedules.html"

    def get(self, request):
        may_make = self.may(permissions.VIEW_TYPE, permissions.CONTROL, permissions.ENQUEUE)
        declared = (type.identifier for type in registry)
        return self.show(
            now=overview.now(),
            schedules=[
                each
                for each in reports.documents()
                if self.seen([(each["type"], each["collection"])])
            ],
            types=sorted(filter(self._may_make, declared)) if may_make else [],
        )

    def _may_make(self, type):
        """Return whether the user may make a schedule of some lane of a Type."""
        names = (permissions.CONTROL, permissions.ENQUEUE)
        return is_enqueueable(type) and self.touches(type, *names)


class SchedulePage(Page):
    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedule.html"

    def get(self, request, identifier):
        row = self.look_up(Schedule, identifier, lambda: queue.get_schedule(identifier))
        slots = list(_own(Slot).filter(schedule=row).order_by("-at")[:STRIP])
        keys = [slot.instance_id for slot in slots[:SLOTS]] + [row.last_id]
        instances = self._instances(keys)
        for slot in slots[:SLOTS]:
            slot.instance = instances.get(slot.instance_id)
            slot.late = slot.decided - (slot.until or slot.at)
        return self.show(
            now=overview.now(),
            schedule=reports.document(row),
            row=row,
            last=instances.get(row.last_id),
            in_line=reports.in_line(row),
            verbs=self._verbs(row),
            runs=shown_runs(reports.upcoming_of(row, UPCOMING)),
            latest=slots,
            slots=slots[:SLOTS],
            inputs=shown_inputs(row) if self.may(permissions.VIEW_INPUTS) else None,
            log=_log(row) if self.may(permissions.VIEW_LOG) else None,
        )

    def _instances(self, keys):
        """Return the Instances with these keys, by key, that the rule lets the user see."""
        rows = self.narrowed(_own(Instance), permissions.VIEW_INSTANCE)
        return rows.in_bulk([key for key in keys if key is not None])

    def _verbs(self, row):
        verbs = VERBS[SCHEDULE].values()
        return [verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)]


def shown_runs(runs):
    """Return runs with their times as text, ``local`` in the schedule's zone and ``utc``."""
    return [run | {"local": _of_zone(run["local"]), "utc": _of_utc(run["at"])} for run in runs]


def _of_zone(text):
    local = datetime.fromisoformat(text)
    return f"{local:%a} {local.isoformat(' ', 'seconds')}"


def _of_utc(time):
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _log(row):
    return list(_own(LogRecord).about(f"schedule:{row.identifier}").reverse()[:LOG])


def _own(model):
    return model.objects.using(settings.DATABASE)
