"""The pages of all tailers, of one tailer with its cursors, and of the verbs on it."""

from django.urls import reverse

from .. import queue
from ..conf import settings
from ..models import Schedule, Tailer
from ..operations.table import TAILER, VERBS
from ..pages.base import Page
from ..pages.operations import VerbPage
from ..reports import overview
from ..web import permissions
from .operations import SHOWN, document, documents, log


class TailersPage(Page):
    """The page of all tailers: their sources, what came out of them, and what is left."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailers.html"

    def get(self, request):
        return self.show(now=overview.now(), tailers=documents(self.seen(queue.tailers())))


class TailerPage(Page):
    """The page of a tailer: its verbs, its cursors, what it lost, what it cannot read."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailer.html"

    def get(self, request, tailer):
        row = self.look_up(Tailer, tailer, lambda: queue.get_tailer(tailer))
        return self.show(
            now=overview.now(),
            tailer=document(row),
            verbs=[verb for verb in VERBS[TAILER].values() if self.may(*verb.needs)],
            has_schedule=_has_schedule(row),
            cursors=queue.cursors(row.identifier, limit=SHOWN),
            shown=SHOWN,
            log=list(log(row)) if self.may(permissions.VIEW_LOG) else None,
        )


class TailerVerbPage(VerbPage):
    kind = TAILER
    model = Tailer
    key = "tailer"
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
