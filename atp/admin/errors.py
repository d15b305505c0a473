"""Error groups in the admin."""

from django.contrib import admin
from django.utils.html import format_html

from ..models import ErrorGroup, Failure, Instance
from ..verbs.table import ERROR
from . import shown
from .base import ReadOnlyAdmin
from .verbs import VerbActions

FIRST, LAST = shown.time_of("first_seen"), shown.time_of("last_seen")


@admin.register(ErrorGroup)
class ErrorGroupAdmin(VerbActions, ReadOnlyAdmin):
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
class FailureAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "type", "title", shown.time_of("time"))
    fields = ("instance", "type", "exception", "title", "version", shown.time_of("time"))
