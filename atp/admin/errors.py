"""Error groups in the admin."""

from django.contrib import admin
from django.utils.html import format_html

from ..models import ErrorGroup, Failure, Instance
from ..verbs.table import ERROR
from ..web.permissions import may_see_errors
from . import shown
from .base import ReadOnlyAdmin
from .verbs import VerbActions

FIRST, LAST = shown.time_of("first_seen"), shown.time_of("last_seen")


class Titled(ReadOnlyAdmin):
    """An admin of rows with a title: an error line, which not every user may see."""

    def get_list_display(self, request):
        return self._told(request, super().get_list_display(request))

    def get_fields(self, request, obj=None):
        return self._told(request, super().get_fields(request, obj))

    def get_search_fields(self, request):
        return self._told(request, super().get_search_fields(request))

    def _told(self, request, names):
        if may_see_errors(request.user):
            return names
        return ["exception" if name == "title" else name for name in names if name != "exception"]


@admin.register(ErrorGroup)
class ErrorGroupAdmin(VerbActions, Titled):
    kind = ERROR
    list_display = ("name", "type", "title", "count", FIRST, LAST, "muted_by")
    search_fields = ("title", "type")
    fields = (
        *("name", "type", "exception", "title", "count", FIRST, LAST),
        *("muted_by", shown.time_of("muted_until"), "note", "version", "dead_letters"),
    )
    readonly_fields = ("name", "dead_letters")

    @admin.display(description="name")
    def name(self, row):
        return row.name

    @admin.display(description="dead letters")
    def dead_letters(self, row):
        url = self.address(Instance, "changelist", error__id__exact=row.pk)
        return format_html('<a href="{}">those that are left</a>', url)


@admin.register(Failure)
class FailureAdmin(Titled):
    list_display = ("__str__", "type", "title", shown.time_of("time"))
    fields = ("instance", "type", "exception", "title", "version", shown.time_of("time"))
