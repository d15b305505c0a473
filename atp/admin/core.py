"""The admin for Instances and their parts, Types, Tasks, the log, and daemons."""

import logging
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html

from .. import queue
from ..exceptions import ATPError
from ..models import Daemon, Inputs, Instance, LogRecord, Response, SpareLease, Step, Task, Type
from ..operations.table import DAEMON, INSTANCE, TARGET, Level
from ..options import HOOKS
from ..reports import documents, overview
from ..web import permissions
from ..web.permissions import ADMIN, actor
from .base import (
    ClaimedFilter,
    InstancePartAdmin,
    KindFilter,
    LevelFilter,
    OperationActions,
    ReadOnlyAdmin,
    ReasonFilter,
    StateFilter,
    TypeFilter,
    describe_inputs,
    describe_json,
    describe_output,
    describe_value,
    find_instances,
    html_list,
    link_column,
    list_files,
    log_table,
    preformatted,
    time_column,
    truncate,
)

# The most log records on an Instance's page, and the most steps that it links.
LOG_SHOWN, STEPS_SHOWN = 200, 200
# The most Instances on the page of the daemon that holds them.
HELD_SHOWN = 200

REGISTERED, STARTED, SEEN = (time_column(name) for name in ("registered", "started", "seen"))


@admin.register(Instance)
class InstanceAdmin(OperationActions):
    kind = INSTANCE
    actions = ("delete_selected",)
    list_display = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "attempt"),
        *("percent", time_column("created"), time_column("finished")),
    )
    list_filter = (TypeFilter, StateFilter, ReasonFilter)
    list_select_related = ("type",)
    search_fields = ("uuid", "identifier")
    search_help_text = "identifier or uuid, or their beginning"
    _facts = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "priority"),
        *("attempt", "restarts", "retries", "lost", "percent", "progress_message"),
        *(time_column("start_before"), "created_by", time_column("created")),
        *(time_column("started"), time_column("finished")),
    )
    # Pairs of a part of the page and the permission to see it.
    _parts = (
        ("task", permissions.VIEW_TASK),
        ("inputs_value", permissions.VIEW_INPUTS),
        # What its enqueue saved, and its hooks with their inputs.
        ("own_shown", permissions.VIEW_INPUTS),
        ("output", permissions.VIEW_RESPONSE),
        ("files", permissions.VIEW_RESPONSE),
        ("steps", permissions.VIEW_STEP),
        ("log", permissions.VIEW_LOG),
    )
    readonly_fields = ("type_link", "percent", *(name for name, _ in _parts))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return [
            *self._facts,
            *(n for n, needed in self._parts if permissions.holds(request.user, needed, obj)),
        ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        return queryset.filter(pk__in=find_instances(search_term).values("pk")), False

    type_link = link_column("type")

    @admin.display(description="progress")
    def percent(self, row: Instance) -> str | None:
        return None if row.progress is None else f"{row.progress:.0%}"

    @admin.display(description="task")
    def task(self, row: Instance) -> str | None:
        return self.link(self._find_part(Task, row))

    @admin.display(description="inputs")
    def inputs_value(self, row: Instance) -> str | None:
        return describe_inputs(self._find_part(Inputs, row))

    @admin.display(description="own")
    def own_shown(self, row: Instance) -> str | None:
        own = row.own
        if isinstance(own, dict) and HOOKS in own:
            own = own | {HOOKS: documents.mask_hooks(own[HOOKS])}
        return None if own is None else describe_json(own)

    @admin.display(description="response")
    def output(self, row: Instance) -> str | None:
        return describe_output(self._find_part(Response, row))

    @admin.display(description="published files")
    def files(self, row: Instance) -> str | None:
        return list_files(self._find_part(Response, row))

    @admin.display(description="steps")
    def steps(self, row: Instance) -> str | None:
        return html_list(self.link(step, step.name) for step in queue.steps(row)[:STEPS_SHOWN])

    @admin.display(description="log")
    def log(self, row: Instance) -> str:
        records = LogRecord.objects.using(row._state.db).of_instance(row)
        latest = list(records.reverse()[: LOG_SHOWN + 1])
        url = self.address(LogRecord, "changelist", instance__id__exact=row.pk)
        text = f"the latest {LOG_SHOWN}; all of it" if len(latest) > LOG_SHOWN else "as a list"
        lines = log_table(reversed(latest[:LOG_SHOWN]))
        return format_html('{}<a href="{}">{}</a>', lines, url, text)

    @staticmethod
    def _find_part(model: Any, row: Instance) -> Any:
        """Return the row of ``model`` that has an Instance's primary key, or None."""
        return model.objects.using(row._state.db).filter(pk=row.pk).first()

    def has_remove_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("atp.delete_instance")

    # This replaces Django's action with the same name, and shows its confirmation page.
    @admin.action(description="Delete selected Instances that have ended", permissions=["remove"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        queryset = permissions.narrow_rows(request.user, permissions.DELETE, queryset)
        selected = self.select_allowed(request, queryset, lambda row: row.is_terminal)
        if not selected:
            return None
        if not request.POST.get("post"):
            return self._ask_to_confirm(request, selected)
        try:
            removed = queue.delete(*selected, by=actor(request, ADMIN))
        except ATPError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self.message_user(request, f"Instances removed: {removed}", messages.SUCCESS)
        return None

    def _ask_to_confirm(self, request: Any, selected: list[Instance]) -> TemplateResponse:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": "Delete multiple objects",
            "subtitle": None,
            "objects_name": model_ngettext(self.opts, len(selected)),
            # The most rows that Django 6.1 lists.
            "delete_confirmation_max_display": getattr(
                self, "delete_confirmation_max_display", None
            ),
            "deletable_objects": [[self.link(row) for row in selected]],
            "model_count": [(self.opts.verbose_name_plural, len(selected))],
            "queryset": selected,
            "perms_lacking": (),
            "protected": (),
            "opts": self.opts,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/delete_selected_confirmation.html", context)


@admin.register(Type)
class TypeAdmin(OperationActions):
    kind = TARGET
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

    def operations(self) -> list[Any]:
        operations: list[Any] = super().operations()
        return [each for each in operations if Level.TYPE in each.levels]

    def target_of(self, row: Type) -> tuple[str, None]:
        return row.identifier, None

    @admin.display(description="hooks")
    def hooks_shown(self, row: Type) -> str | None:
        return describe_json(documents.mask_hooks(row.hooks)) if row.hooks else None

    @admin.display(description="instances")
    def instances(self, row: Type) -> str:
        url = self.address(Instance, "changelist", type=row.identifier)
        return format_html('<a href="{}">Instances of this Type</a>', url)

    @admin.display(description="log")
    def log(self, row: Type) -> str:
        url = self.address(LogRecord, "changelist", subject__exact=f"type:{row.identifier}")
        return format_html('<a href="{}">what happened to this Type</a>', url)


@admin.register(Inputs)
class InputsAdmin(InstancePartAdmin):
    list_display = ("__str__", "instance_link", "instance_type", "format")
    fields = ("instance_link", "instance_type", "format", "value")
    readonly_fields = ("instance_link", "instance_type", "value")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("data")

    @admin.display(description="value")
    def value(self, row: Inputs) -> str | None:
        return describe_inputs(row)


@admin.register(Response)
class ResponseAdmin(InstancePartAdmin):
    list_display = ("__str__", "instance_link", "instance_type", "content_type", "size", "file")
    fields = ("instance_link", "instance_type", "content_type", "size", "output", "published")
    readonly_fields = ("instance_link", "instance_type", "output", "published")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("data")

    @admin.display(description="output")
    def output(self, row: Response) -> str | None:
        return describe_output(row)

    @admin.display(description="published files")
    def published(self, row: Response) -> str | None:
        return list_files(row)


@admin.register(Step)
class StepAdmin(InstancePartAdmin):
    list_display = (
        *("name", "instance_link", "instance_type", "attempt"),
        *(time_column("started"), time_column("finished"), time_column("until")),
    )
    fields = (*list_display, "value")
    readonly_fields = ("instance_link", "instance_type", "value")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("data")

    @admin.display(description="result")
    def value(self, row: Step) -> str | None:
        return None if row.data is None else describe_value(row.format, row.data)


@admin.register(LogRecord)
class LogRecordAdmin(InstancePartAdmin):
    list_display = (
        *(time_column("time"), "instance_link", "subject", "kind", "state", "attempt"),
        *("level_name", "who", "beginning"),
    )
    list_filter = (KindFilter, LevelFilter)
    fields = (
        *(time_column("time"), "instance_link", "subject", "kind", "detail", "state", "attempt"),
        *("level_name", "who", "text"),
    )
    readonly_fields = ("instance_link", "level_name", "text")

    @admin.display(description="level")
    def level_name(self, row: LogRecord) -> str:
        return logging.getLevelName(row.level)

    @admin.display(description="message")
    def beginning(self, row: LogRecord) -> str:
        return truncate(row.message, 100)

    @admin.display(description="message")
    def text(self, row: LogRecord) -> str:
        return preformatted(row.message)


@admin.register(Daemon)
class DaemonAdmin(OperationActions):
    kind = DAEMON
    list_display = ("__str__", "condition", "mode", "version", STARTED, SEEN, "idle")
    fields = (
        *("uuid", "host", "pid", "version", "condition", "types", "workers", "lock"),
        *(time_column("lease_until"), "idle", "mode", "request", STARTED, SEEN, "held", "log"),
    )
    readonly_fields = ("condition", "held", "log")

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return the fields, without the daemon's Instances if the user may not see Instances."""
        fields = list(super().get_fields(request, obj))
        if request.user.has_perm(permissions.VIEW_INSTANCE):
            return fields
        return [name for name in fields if name not in ("workers", "held")]

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Read the database's clock once, to show the conditions of all daemons in the list."""
        changelist = super().get_changelist_instance(request)
        now = overview.now()
        for row in changelist.result_list:
            row.now = now
        return changelist

    @admin.display(description="condition")
    def condition(self, row: Daemon) -> str | None:
        return overview.condition(row, getattr(row, "now", None) or overview.now())

    @admin.display(description="holds")
    def held(self, row: Daemon) -> str | None:
        tasks = Task.objects.using(row._state.db).filter(daemon=row).select_related("instance")
        return html_list(self.link(task.instance) for task in tasks.order_by("pk")[:HELD_SHOWN])

    @admin.display(description="log")
    def log(self, row: Daemon) -> str:
        url = self.address(LogRecord, "changelist", subject__exact=f"daemon:{row}")
        return format_html('<a href="{}">what happened to this daemon</a>', url)


def _without_daemons(request: HttpRequest, names: Any) -> list[Any]:
    """Return the field names, without ``daemon_link`` if the user may not see daemons."""
    may_see = permissions.holds(request.user, permissions.VIEW_DAEMON)
    return [name for name in names if may_see or name != "daemon_link"]


@admin.register(Task)
class TaskAdmin(InstancePartAdmin):
    list_display = (
        *("__str__", "instance_link", "type_link", "collection", "priority"),
        *(time_column("due_at"), "daemon_link", "attempt", "request"),
    )
    list_filter = (TypeFilter, ClaimedFilter)
    list_select_related = ("instance", "type", "daemon")

    fields = (
        *("instance_link", "type_link", "collection", "priority", time_column("due_at")),
        *(time_column("start_before"), "daemon_link", "attempt", "request"),
    )
    readonly_fields = ("instance_link", "type_link", "daemon_link")

    type_link = link_column("type")
    daemon_link = link_column("daemon")

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return _without_daemons(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return _without_daemons(request, super().get_fields(request, obj))


@admin.register(SpareLease)
class SpareLeaseAdmin(ReadOnlyAdmin):
    list_display = ("daemon", time_column("until"))
    list_select_related = ("daemon",)
    fields = ("daemon_link", time_column("until"))
    readonly_fields = ("daemon_link",)

    daemon_link = link_column("daemon")
