"""Schedules and their slots in the admin."""

from django.contrib import admin
from django.utils.html import format_html

from ..models import Instance, LogRecord, Schedule, Slot
from ..reports import hooks, overview, schedules
from ..verbs.table import SCHEDULE
from ..web import permissions
from . import shown
from .base import ReadOnlyAdmin, link_to
from .verbs import VerbActions

NEXT_AT, SINCE = shown.time_of("next_at", "next slot"), shown.time_of("since", "last changed")


@admin.register(Schedule)
class ScheduleAdmin(VerbActions, ReadOnlyAdmin):
    kind = SCHEDULE
    ordering = ("identifier",)
    list_display = ("identifier", "type_link", "when", "timezone", NEXT_AT, "state", "is_set")
    list_select_related = ("type",)
    search_fields = ("identifier",)
    _facts = (
        *("identifier", "type_link", "state", "when", "cron", "every", "timezone", NEXT_AT),
        *(shown.time_of("due_at"), "missed", "most", "window", "late_after", "overlap", "jitter"),
        *("priority", "collection", "start_before", "timeout", "hooks_shown", "takes_slot"),
        *("paused_by", "paused_reason"),
        *(shown.time_of("paused_since"), shown.time_of("paused_until"), "is_set", "who", SINCE),
        *("revision", shown.time_of("retired"), "trouble", "slots", "log"),
    )
    readonly_fields = (
        *("type_link", "state", "when", "hooks_shown", "slots", "log", "inputs_value"),
    )

    def get_fields(self, request, obj=None):
        may_see = permissions.holds(request.user, permissions.VIEW_INPUTS, obj)
        return [*self._facts, "inputs_value"] if may_see else self._facts

    def get_changelist_instance(self, request):
        """Read the database's clock once, for the states of all rows."""
        changelist = super().get_changelist_instance(request)
        now = overview.now()
        for row in changelist.result_list:
            row.now = now
        return changelist

    type_link = link_to("type")

    @admin.display(description="when")
    def when(self, row):
        return schedules.words(row)

    @admin.display(description="state")
    def state(self, row):
        return schedules.state(row, getattr(row, "now", None) or overview.now())

    @admin.display(description="inputs")
    def inputs_value(self, row):
        return shown.inputs(row)

    @admin.display(description="hooks")
    def hooks_shown(self, row):
        return shown.plain(hooks.entries_shown(row.hooks)) if row.hooks else None

    @admin.display(description="slots")
    def slots(self, row):
        url = self.address(Slot, "changelist", schedule__id__exact=row.pk)
        return format_html('<a href="{}">what became of its slots</a>', url)

    @admin.display(description="log")
    def log(self, row):
        url = self.address(LogRecord, "changelist", subject__exact=f"schedule:{row}")
        return format_html('<a href="{}">what happened to this schedule</a>', url)


@admin.register(Slot)
class SlotAdmin(ReadOnlyAdmin):
    list_display = (
        *(shown.time_of("at"), "schedule_link", shown.time_of("until"), "count"),
        *("outcome", "who", shown.time_of("decided"), "beginning"),
    )
    list_select_related = ("schedule",)
    search_fields = ("schedule__identifier",)
    fields = (
        *("schedule_link", shown.time_of("at"), shown.time_of("until"), "count", "is_more"),
        *("outcome", "instance_link", shown.time_of("decided"), "who", "message"),
    )
    readonly_fields = ("schedule_link", "instance_link")

    schedule_link = link_to("schedule")

    @admin.display(description="Instance")
    def instance_link(self, row):
        return self.link(Instance.objects.using(row._state.db).filter(pk=row.instance_id).first())

    @admin.display(description="message")
    def beginning(self, row):
        return shown.short(row.message, 100)
