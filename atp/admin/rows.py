"""Types, Tasks, daemons, logs and the parts of Instances in the admin."""

import logging

from django.contrib import admin
from django.utils.html import format_html

from ..models import (
    Daemon,
    Inputs,
    Instance,
    LogRecord,
    Response,
    SpareLease,
    Step,
    Task,
    Type,
)
from ..reports import hooks, overview
from ..verbs.table import DAEMON, SCOPE
from ..verbs.table.scopes import Level
from ..web import permissions
from . import shown
from .base import OfInstanceAdmin, ReadOnlyAdmin, link_to
from .filters import ClaimedFilter, KindFilter, LevelFilter, TypeFilter
from .verbs import VerbActions

# The most Instances on a daemon's page, of those that it holds.
HELD_SHOWN = 200

REGISTERED, STARTED, SEEN = (shown.time_of(name) for name in ("registered", "started", "seen"))


@admin.register(Type)
class TypeAdmin(VerbActions, ReadOnlyAdmin):
    kind = SCOPE
    ordering = ("identifier",)
    list_display = (
        "identifier",
        "handler",
        "timeout",
        "max_restarts",
        "max_retries",
        "retention",
        REGISTERED,
    )
    search_fields = ("identifier",)
    fields = (
        *("identifier", "handler", "timeout", "max_restarts", "max_retries", "backoff"),
        *("backoff_max", "retention", "max_memory", "serializer", REGISTERED, "late_writes"),
        *("downstream", "owner", "runbook", "sensitive", "hooks_shown", "instances", "log"),
    )
    readonly_fields = ("hooks_shown", "instances", "log")

    def verbs(self):
        return [verb for verb in super().verbs() if Level.TYPE in verb.levels]

    def subject_of(self, row):
        return row.identifier, None

    @admin.display(description="hooks")
    def hooks_shown(self, row):
        return shown.plain(hooks.entries_shown(row.hooks)) if row.hooks else None

    @admin.display(description="instances")
    def instances(self, row):
        url = self.address(Instance, "changelist", type=row.identifier)
        return format_html('<a href="{}">Instances of this Type</a>', url)

    @admin.display(description="log")
    def log(self, row):
        url = self.address(LogRecord, "changelist", subject__exact=f"type:{row.identifier}")
        return format_html('<a href="{}">what happened to this Type</a>', url)


@admin.register(Inputs)
class InputsAdmin(OfInstanceAdmin):
    list_display = ("__str__", "instance_link", "instance_type", "format")
    fields = ("instance_link", "instance_type", "format", "value")
    readonly_fields = ("instance_link", "instance_type", "value")

    def get_queryset(self, request):
        return super().get_queryset(request).defer("data")

    @admin.display(description="value")
    def value(self, row):
        return shown.inputs(row)


@admin.register(Response)
class ResponseAdmin(OfInstanceAdmin):
    list_display = ("__str__", "instance_link", "instance_type", "content_type", "size", "file")
    fields = ("instance_link", "instance_type", "content_type", "size", "output", "published")
    readonly_fields = ("instance_link", "instance_type", "output", "published")

    def get_queryset(self, request):
        return super().get_queryset(request).defer("data")

    @admin.display(description="output")
    def output(self, row):
        return shown.output(row)

    @admin.display(description="published files")
    def published(self, row):
        return shown.files(row)


@admin.register(Step)
class StepAdmin(OfInstanceAdmin):
    list_display = (
        *("name", "instance_link", "instance_type", "attempt"),
        *(shown.time_of("started"), shown.time_of("finished"), shown.time_of("until")),
    )
    fields = (*list_display, "value")
    readonly_fields = ("instance_link", "instance_type", "value")

    def get_queryset(self, request):
        return super().get_queryset(request).defer("data")

    @admin.display(description="result")
    def value(self, row):
        return None if row.data is None else shown.result(row)


@admin.register(LogRecord)
class LogRecordAdmin(OfInstanceAdmin):
    list_display = (
        *(shown.time_of("time"), "instance_link", "subject", "kind", "state", "attempt"),
        *("level_name", "who", "beginning"),
    )
    list_filter = (KindFilter, LevelFilter)
    fields = (
        *(shown.time_of("time"), "instance_link", "subject", "kind", "detail", "state", "attempt"),
        *("level_name", "who", "text"),
    )
    readonly_fields = ("instance_link", "level_name", "text")

    @admin.display(description="level")
    def level_name(self, row):
        return logging.getLevelName(row.level)

    @admin.display(description="message")
    def beginning(self, row):
        return shown.short(row.message, 100)

    @admin.display(description="message")
    def text(self, row):
        return shown.preformatted(row.message)


@admin.register(Daemon)
class DaemonAdmin(VerbActions, ReadOnlyAdmin):
    kind = DAEMON
    list_display = ("__str__", "condition", "mode", "version", STARTED, SEEN, "idle")
    fields = (
        *("uuid", "host", "pid", "version", "condition", "types", "workers", "lock"),
        *(shown.time_of("lease_until"), "idle", "mode", "request", STARTED, SEEN, "held", "log"),
    )
    readonly_fields = ("condition", "held", "log")

    def get_fields(self, request, obj=None):
        """Leave out the Instances that it runs for who may not see Instances."""
        fields = super().get_fields(request, obj)
        if request.user.has_perm(permissions.VIEW_INSTANCE):
            return fields
        return [name for name in fields if name not in ("workers", "held")]

    def get_changelist_instance(self, request):
        """Read the database's clock once, for the conditions of all rows."""
        changelist = super().get_changelist_instance(request)
        now = overview.now()
        for row in changelist.result_list:
            row.now = now
        return changelist

    @admin.display(description="condition")
    def condition(self, row):
        return overview.condition(row, getattr(row, "now", None) or overview.now())

    @admin.display(description="holds")
    def held(self, row):
        tasks = Task.objects.using(row._state.db).filter(daemon=row).select_related("instance")
        return shown.items(self.link(task.instance) for task in tasks.order_by("pk")[:HELD_SHOWN])

    @admin.display(description="log")
    def log(self, row):
        url = self.address(LogRecord, "changelist", subject__exact=f"daemon:{row}")
        return format_html('<a href="{}">what happened to this daemon</a>', url)


@admin.register(Task)
class TaskAdmin(OfInstanceAdmin):
    list_display = (
        *("__str__", "instance_link", "type_link", "collection", "priority"),
        *(shown.time_of("due_at"), "daemon_link", "attempt", "request"),
    )
    list_filter = (TypeFilter, ClaimedFilter)
    list_select_related = ("instance", "type", "daemon")

    def get_list_display(self, request):
        return _without_daemons(request, super().get_list_display(request))

    def get_fields(self, request, obj=None):
        return _without_daemons(request, super().get_fields(request, obj))

    fields = (
        *("instance_link", "type_link", "collection", "priority", shown.time_of("due_at")),
        *(shown.time_of("start_before"), "daemon_link", "attempt", "request"),
    )
    readonly_fields = ("instance_link", "type_link", "daemon_link")

    type_link = link_to("type")

    daemon_link = link_to("daemon")


def _without_daemons(request, names):
    """Leave out the daemon for users who may not see daemons."""
    if permissions.holds(request.user, permissions.VIEW_DAEMON):
        return names
    return [name for name in names if name != "daemon_link"]


@admin.register(SpareLease)
class SpareLeaseAdmin(ReadOnlyAdmin):
    list_display = ("daemon", shown.time_of("until"))
    list_select_related = ("daemon",)
    fields = ("daemon_link", shown.time_of("until"))
    readonly_fields = ("daemon_link",)

    daemon_link = link_to("daemon")
