"""Downstreams in the admin."""

from django.contrib import admin
from django.utils.html import format_html

from ..models import Downstream, LogRecord
from ..reports import downstreams
from ..verbs.table import DOWNSTREAM
from . import shown
from .base import ReadOnlyAdmin
from .verbs import VerbActions

SINCE = shown.time_of("since")


@admin.register(Downstream)
class DownstreamAdmin(VerbActions, ReadOnlyAdmin):
    kind = DOWNSTREAM
    ordering = ("name",)
    list_display = ("name", "state", "per_second", "ceiling", "floor", "who", SINCE)
    search_fields = ("name",)
    fields = (
        *("name", "state", "per_second", "last_max", "ceiling", "floor", "trips"),
        *(shown.time_of("not_before"), "probe", "who", SINCE, "types", "log"),
    )
    readonly_fields = ("types", "log")

    @admin.display(description="types")
    def types(self, row):
        return shown.items(downstreams.calling(row))

    @admin.display(description="log")
    def log(self, row):
        url = self.address(LogRecord, "changelist", subject__exact=f"downstream:{row}")
        return format_html('<a href="{}">what happened to this downstream</a>', url)
