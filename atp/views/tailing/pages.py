"""The pages of all tailers, of one tailer with its cursors, and of the verbs on it."""

from django.urls import reverse

from ... import queue
from ...conf import settings
from ...models import LogRecord, Schedule
from ...reports import overview
from ...reports.tailing.documents import SHOWN
from ...rows.log import Kind
from ...verbs.table import TAILER, VERBS
from ...web import permissions
from ..base import Page
from ..verbs import VerbPage

# Log records on a tailer's page.
LOG = 50


class TailersPage(Page):
    """The page of all tailers: their sources, what came out of them, and what is left."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailers.html"

    def get(self, request):
        return self.show(now=overview.now(), tailers=queue.tailers())


class TailerPage(Page):
    """The page of a tailer, with its verbs, its cursors, and who has set them."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailer.html"

    def get(self, request, tailer):
        row = queue.get_tailer(tailer)
        return self.show(
            now=overview.now(),
            tailer=row,
            verbs=[verb for verb in VERBS[TAILER].values() if self.may(verb.permission)],
            has_schedule=_has_schedule(row),
            cursors=queue.cursors(row.identifier, limit=SHOWN),
            shown=SHOWN,
            log=_log(row) if self.may(permissions.VIEW_LOG) else None,
        )


class TailerVerbPage(VerbPage):
    kind = TAILER
    view_permission = permissions.VIEW_TAILER

    def find(self):
        return queue.get_tailer(self.kwargs["tailer"])

    def page_to_return_to(self):
        return reverse("atp:tailer", args=[self.kwargs["tailer"]])

    def name_of(self, subject):
        return f"tailer {subject}"


def _has_schedule(row):
    schedules = Schedule.objects.using(settings.DATABASE)
    return schedules.filter(identifier=row.identifier).exists()


def _log(row):
    records = LogRecord.objects.using(settings.DATABASE).about(f"type:{row.identifier}")
    return list(records.filter(kind=Kind.CURSOR).reverse()[:LOG])
