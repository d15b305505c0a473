"""Instances and their parts, Types, Tasks, log, daemons."""

import logging

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext
from django.template.response import TemplateResponse
from django.utils.html import format_html

from .. import queue
from ..exceptions import ATPError
from ..models import Daemon, Inputs, Instance, LogRecord, Response, SpareLease, Step, Task, Type
from ..operations.table import DAEMON, INSTANCE, SCOPE, Level
from ..options import HOOKS
from ..reports import documents, overview
from ..web import permissions
from ..web.permissions import ADMIN, actor
from . import base as shown
from .base import (
    ClaimedFilter,
    KindFilter,
    LevelFilter,
    OfInstanceAdmin,
    ReadOnlyAdmin,
    ReasonFilter,
    StateFilter,
    TypeFilter,
    VerbActions,
    link_to,
    matching,
)

# Instances in the admin, and the verbs on them.

# The most log records on an Instance's own page.
LOG_SHOWN = 200
# The most steps that an Instance's page links.
STEPS_SHOWN = 200


@admin.register(Instance)
class InstanceAdmin(VerbActions, ReadOnlyAdmin):
    kind = INSTANCE
    actions = ("delete_selected",)
    list_display = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "attempt"),
        *("percent", shown.time_of("created"), shown.time_of("finished")),
    )
    list_filter = (TypeFilter, StateFilter, ReasonFilter)
    list_select_related = ("type",)
    search_fields = ("uuid", "identifier")
    search_help_text = "identifier or uuid, or their beginning"
    _facts = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "priority"),
        *("attempt", "restarts", "retries", "lost", "percent", "progress_message"),
        *(shown.time_of("start_before"), "created_by", shown.time_of("created")),
        *(shown.time_of("started"), shown.time_of("finished")),
    )
    # Pairs: a part of the page, and the permission to see it.
    _parts = (
        ("task", permissions.VIEW_TASK),
        ("inputs_value", permissions.VIEW_INPUTS),
        # What its enqueue has saved, and its hooks with their inputs.
        ("own_shown", permissions.VIEW_INPUTS),
        ("output", permissions.VIEW_RESPONSE),
        ("files", permissions.VIEW_RESPONSE),
        ("steps", permissions.VIEW_STEP),
        ("log", permissions.VIEW_LOG),
    )
    readonly_fields = ("type_link", "percent", *(name for name, _ in _parts))

    def get_fields(self, request, obj=None):
        return [
            *self._facts,
            *(n for n, needed in self._parts if permissions.holds(request.user, needed, obj)),
        ]

    def get_search_results(self, request, queryset, search_term):
        if not search_term:
            return queryset, False
        return queryset.filter(pk__in=matching(search_term).values("pk")), False

    type_link = link_to("type")

    @admin.display(description="progress")
    def percent(self, row):
        return None if row.progress is None else f"{row.progress:.0%}"

    @admin.display(description="task")
    def task(self, row):
        return self.link(self._of(Task, row))

    @admin.display(description="inputs")
    def inputs_value(self, row):
        return shown.inputs(self._of(Inputs, row))

    @admin.display(description="own")
    def own_shown(self, row):
        own = row.own
        if isinstance(own, dict) and HOOKS in own:
            own = own | {HOOKS: documents.entries_shown(own[HOOKS])}
        return None if own is None else shown.plain(own)

    @admin.display(description="response")
    def output(self, row):
        return shown.output(self._of(Response, row))

    @admin.display(description="published files")
    def files(self, row):
        return shown.files(self._of(Response, row))

    @admin.display(description="steps")
    def steps(self, row):
        return shown.items(self.link(step, step.name) for step in queue.steps(row)[:STEPS_SHOWN])

    @admin.display(description="log")
    def log(self, row):
        records = LogRecord.objects.using(row._state.db).of_instance(row)
        latest = list(records.reverse()[: LOG_SHOWN + 1])
        url = self.address(LogRecord, "changelist", instance__id__exact=row.pk)
        told = f"the latest {LOG_SHOWN}; all of it" if len(latest) > LOG_SHOWN else "as a list"
        lines = shown.log(reversed(latest[:LOG_SHOWN]))
        return format_html('{}<a href="{}">{}</a>', lines, url, told)

    @staticmethod
    def _of(model, row):
        return model.objects.using(row._state.db).filter(pk=row.pk).first()

    # Actions

    def has_remove_permission(self, request):
        return request.user.has_perm("atp.delete_instance")

    # It replaces Django's action of this name, and shows that action's confirmation page.
    @admin.action(description="Delete selected Instances that have ended", permissions=["remove"])
    def delete_selected(self, request, queryset):
        queryset = permissions.narrowed(request.user, permissions.DELETE, queryset)
        chosen = self.chosen(request, queryset, lambda row: row.is_terminal)
        if not chosen:
            return None
        if not request.POST.get("post"):
            return self._confirmation(request, chosen)
        try:
            removed = queue.delete(*chosen, by=actor(request, ADMIN))
        except ATPError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self.message_user(request, f"Instances removed: {removed}", messages.SUCCESS)
        return None

    def _confirmation(self, request, chosen):
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": "Delete multiple objects",
            "subtitle": None,
            "objects_name": model_ngettext(self.opts, len(chosen)),
            # Django 6.1 lists at most so many, a limit that it keeps on the ModelAdmin.
            "delete_confirmation_max_display": getattr(
                self, "delete_confirmation_max_display", None
            ),
            "deletable_objects": [[self.link(row) for row in chosen]],
            "model_count": [(self.opts.verbose_name_plural, len(chosen))],
            "queryset": chosen,
            "perms_lacking": (),
            "protected": (),
            "opts": self.opts,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/delete_selected_confirmation.html", context)


# Types, Tasks, daemons, logs and the parts of Instances in the admin.

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
        return shown.plain(documents.entries_shown(row.hooks)) if row.hooks else None

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
