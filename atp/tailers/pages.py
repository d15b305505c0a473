"""The pages of all tailers, of one tailer with its cursors, and of the operations on it."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from .. import queue
from ..conf import settings
from ..models import Schedule, Tailer
from ..operations.table import OPERATIONS, TAILER
from ..pages.base import Page
from ..pages.operations import OperationPage
from ..reports import overview
from ..web import permissions
from .operations import MOST_CURSORS, document, documents, log


class TailersPage(Page):
    """The page that lists all tailers, with their sources and how much they have read."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailers.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        tailers = self.filter_permitted(queue.tailers())
        return self.show(now=overview.now(), tailers=documents(tailers))


class TailerPage(Page):
    """The page of one tailer, with its operations, its cursors and its log."""

    permissions = (permissions.VIEW_TAILER,)
    template_name = "atp/tailer.html"

    def get(self, request: HttpRequest, tailer: str) -> HttpResponseBase:
        row = self.look_up(Tailer, tailer, lambda: queue.get_tailer(tailer))
        return self.show(
            now=overview.now(),
            tailer=document(row),
            verbs=[verb for verb in OPERATIONS[TAILER].values() if self.may(*verb.needs)],
            has_schedule=_has_schedule(row),
            cursors=queue.cursors(row.identifier, limit=MOST_CURSORS),
            shown=MOST_CURSORS,
            log=list(log(row)) if self.may(permissions.VIEW_LOG) else None,
        )


class TailerOperationPage(OperationPage):
    kind = TAILER
    model = Tailer
    key = "tailer"
    view_permission = permissions.VIEW_TAILER

    def find(self) -> Tailer:
        return queue.get_tailer(self.kwargs["tailer"])

    def page_to_return_to(self) -> str:
        return reverse("atp:tailer", args=[self.kwargs["tailer"]])

    def heading(self, subject: Tailer) -> str:
        return f"tailer {subject}"


def _has_schedule(row: Tailer) -> bool:
    schedules = Schedule.objects.using(settings.DATABASE)
    return schedules.filter(identifier=row.identifier).exists()
