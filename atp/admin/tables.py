"""The admin for each table: Instances and what belongs to them, then the features."""

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
from ..downstreams import operations as downstreams
from ..exceptions import ATPError
from ..graphs import reports as graphs
from ..models import (
    Cursor,
    Daemon,
    Downstream,
    Edge,
    ErrorGroup,
    Failing,
    Failure,
    Gate,
    Graph,
    Inputs,
    Instance,
    Limit,
    LogRecord,
    Node,
    Response,
    Schedule,
    Slot,
    SpareLease,
    Step,
    Tailer,
    Task,
    Type,
    Undo,
)
from ..operations.table import DAEMON, DOWNSTREAM, ERROR, GRAPH, INSTANCE, SCHEDULE, TARGET, Level
from ..options import HOOKS
from ..reports import documents, overview
from ..schedules import reports as schedules
from ..web import permissions
from ..web.permissions import ADMIN, actor, may_see_errors
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

# Instances and their parts, Types, Tasks, the log, and daemons

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
        *("needs", "resources", "downstream", "owner", "runbook", "sensitive", "hooks_shown"),
        *("instances", "log"),
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
        *("uuid", "host", "pid", "version", "condition", "types", "labels", "capacity"),
        *("engine", "workers", "lock"),
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


SINCE = time_column("since")
FIRST, LAST = time_column("first_seen"), time_column("last_seen")
CREATED, ENDED = time_column("created"), time_column("ended")
NEXT_AT = time_column("next_at", "next slot")
SCHEDULE_SINCE = time_column("since", "last changed")


# Downstreams


@admin.register(Downstream)
class DownstreamAdmin(OperationActions):
    kind = DOWNSTREAM
    ordering = ("name",)
    list_display = ("name", "state", "per_second", "ceiling", "floor", "who", SINCE)
    search_fields = ("name",)
    fields = (
        *("name", "state", "per_second", "last_max", "ceiling", "floor", "trips"),
        *(time_column("not_before"), "probe", "who", SINCE, "types", "log"),
    )
    readonly_fields = ("types", "log")

    @admin.display(description="types")
    def types(self, row: Downstream) -> str | None:
        return html_list(downstreams.calling_types(row))

    @admin.display(description="log")
    def log(self, row: Downstream) -> str:
        url = self.address(LogRecord, "changelist", subject__exact=f"downstream:{row}")
        return format_html('<a href="{}">what happened to this downstream</a>', url)


# Error groups


class ErrorTitleAdmin(ReadOnlyAdmin):
    """The admin of rows whose title quotes an error, which only some users may see."""

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return self._hide_titles(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return self._hide_titles(request, super().get_fields(request, obj))

    def get_search_fields(self, request: HttpRequest) -> list[Any]:
        return self._hide_titles(request, super().get_search_fields(request))

    def _hide_titles(self, request: HttpRequest, names: Any) -> list[Any]:
        """Return the field names. Users who may not see errors get ``exception``, not ``title``."""
        if may_see_errors(request.user):
            return list(names)
        return ["exception" if name == "title" else name for name in names if name != "exception"]


@admin.register(ErrorGroup)
class ErrorGroupAdmin(OperationActions, ErrorTitleAdmin):
    kind = ERROR
    list_display = ("name", "type", "title", "count", FIRST, LAST, "muted_by")
    search_fields = ("title", "type")
    fields = (
        *("name", "type", "exception", "title", "count", FIRST, LAST),
        *("muted_by", time_column("muted_until"), "note", "version", "dead_letters"),
    )
    readonly_fields = ("name", "dead_letters")

    @admin.display(description="name")
    def name(self, row: ErrorGroup) -> str:
        return row.name

    @admin.display(description="dead letters")
    def dead_letters(self, row: ErrorGroup) -> str:
        url = self.address(Instance, "changelist", error__id__exact=row.pk)
        return format_html('<a href="{}">those that are left</a>', url)


@admin.register(Failure)
class FailureAdmin(ErrorTitleAdmin):
    list_display = ("__str__", "type", "title", time_column("time"))
    fields = ("instance", "type", "exception", "title", "version", time_column("time"))


# Graphs, their nodes and edges


@admin.register(Graph)
class GraphAdmin(OperationActions):
    kind = GRAPH
    list_display = ("uuid", "name", "created_by", CREATED, ENDED, "request")
    search_fields = ("name",)
    fields = (
        *("uuid", "name", "created_by", CREATED, ENDED, "request", time_column("undone")),
        *("by_state", "node_list"),
    )
    readonly_fields = ("uuid", "by_state", "node_list")

    @admin.display(description="nodes by state")
    def by_state(self, row: Graph) -> str | None:
        counts = graphs.counts_of(row).by_state()
        return ", ".join(f"{count} {state}" for state, count in counts) or None

    @admin.display(description="nodes")
    def node_list(self, row: Graph) -> str:
        url = self.address(Node, "changelist", graph__id__exact=row.pk)
        return format_html('<a href="{}">the nodes of this graph</a>', url)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = (
        *("name", "graph_link", "schedule_link", "instance_link"),
        time_column("not_before"),
    )
    list_select_related = ("graph", "schedule", "instance__type")
    search_fields = ("name",)
    fields = (*list_display, "edges")
    readonly_fields = ("graph_link", "schedule_link", "instance_link", "edges")

    graph_link = link_column("graph")
    schedule_link = link_column("schedule")

    instance_link = link_column("instance", "Instance")

    @admin.display(description="edges")
    def edges(self, row: Node) -> str:
        return format_html(
            '<a href="{}">what it waits for</a>, <a href="{}">what waits for it</a>',
            self.address(Edge, "changelist", downstream__exact=row.pk),
            self.address(Edge, "changelist", upstream__exact=row.pk),
        )


@admin.register(Edge)
class EdgeAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "upstream_link", "downstream_link", "on")
    list_select_related = ("upstream", "downstream")
    fields = ("upstream_link", "downstream_link", "on")
    readonly_fields = ("upstream_link", "downstream_link")

    upstream_link = link_column("upstream")

    downstream_link = link_column("downstream")


@admin.register(Failing)
class FailingAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "node_link")
    list_select_related = ("node",)
    fields = ("node_link",)
    readonly_fields = ("node_link",)

    node_link = link_column("node")


@admin.register(Undo)
class UndoAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "node_link", "type", "collection", "priority")
    list_select_related = ("node", "type")
    _facts = ("node_link", "type", "collection", "priority", "created_by", "format")
    readonly_fields = ("node_link", "inputs_value")

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        may_see = permissions.holds(request.user, permissions.VIEW_INPUTS, obj)
        return [*self._facts, *(["inputs_value"] if may_see else [])]

    @admin.display(description="inputs")
    def inputs_value(self, row: Undo) -> str | None:
        return describe_inputs(row)

    node_link = link_column("node")


# Schedules and their slots


@admin.register(Schedule)
class ScheduleAdmin(OperationActions):
    kind = SCHEDULE
    ordering = ("identifier",)
    list_display = ("identifier", "type_link", "when", "timezone", NEXT_AT, "state", "is_set")
    list_select_related = ("type",)
    search_fields = ("identifier",)
    _facts = (
        *("identifier", "type_link", "state", "when", "cron", "every", "timezone", NEXT_AT),
        *(time_column("due_at"), "missed", "most", "window", "late_after", "overlap", "jitter"),
        *("priority", "collection", "start_before", "timeout", "hooks_shown", "takes_slot"),
        *("paused_by", "paused_reason", time_column("paused_since"), time_column("paused_until")),
        *("is_set", "who", SCHEDULE_SINCE),
        *("revision", time_column("retired"), "trouble", "slots", "log"),
    )
    readonly_fields = (
        *("type_link", "state", "when", "hooks_shown", "slots", "log", "inputs_value"),
    )

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        may_see = permissions.holds(request.user, permissions.VIEW_INPUTS, obj)
        return [*self._facts, *(["inputs_value"] if may_see else [])]

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Read the database's clock once, to show the states of all schedules in the list."""
        changelist = super().get_changelist_instance(request)
        now = overview.now()
        for row in changelist.result_list:
            row.now = now
        return changelist

    type_link = link_column("type")

    @admin.display(description="when")
    def when(self, row: Schedule) -> str:
        return schedules.words(row)

    @admin.display(description="state")
    def state(self, row: Schedule) -> str | None:
        return schedules.state(row, getattr(row, "now", None) or overview.now())

    @admin.display(description="inputs")
    def inputs_value(self, row: Schedule) -> str | None:
        return describe_inputs(row)

    @admin.display(description="hooks")
    def hooks_shown(self, row: Schedule) -> str | None:
        return describe_json(documents.mask_hooks(row.hooks)) if row.hooks else None

    @admin.display(description="slots")
    def slots(self, row: Schedule) -> str:
        url = self.address(Slot, "changelist", schedule__id__exact=row.pk)
        return format_html('<a href="{}">what became of its slots</a>', url)

    @admin.display(description="log")
    def log(self, row: Schedule) -> str:
        url = self.address(LogRecord, "changelist", subject__exact=f"schedule:{row}")
        return format_html('<a href="{}">what happened to this schedule</a>', url)


@admin.register(Slot)
class SlotAdmin(ReadOnlyAdmin):
    list_display = (
        *(time_column("at"), "schedule_link", time_column("until"), "count"),
        *("outcome", "who", time_column("decided"), "beginning"),
    )
    list_select_related = ("schedule",)
    search_fields = ("schedule__identifier",)
    fields = (
        *("schedule_link", time_column("at"), time_column("until"), "count", "is_more"),
        *("outcome", "instance_link", time_column("decided"), "who", "message"),
    )
    readonly_fields = ("schedule_link", "instance_link")

    schedule_link = link_column("schedule")

    @admin.display(description="Instance")
    def instance_link(self, row: Slot) -> str | None:
        instances = Instance.objects.using(row._state.db).filter(pk=row.instance_id or 0)
        return self.link(instances.first())

    @admin.display(description="message")
    def beginning(self, row: Slot) -> str:
        return truncate(row.message, 100)


# Gates and limits


class ControlAdmin(ReadOnlyAdmin):
    """The read-only admin of gates or limits. Operators set these on ATP's own pages."""

    ordering = ("subject",)
    list_select_related = ("type",)
    search_fields = ("subject",)
    readonly_fields = ("type_link",)

    type_link = link_column("type")


@admin.register(Gate)
class GateAdmin(ControlAdmin):
    list_display = (
        *("subject", "mode", "reason", "who"),
        *(time_column("since"), time_column("until")),
    )
    fields = ("subject", "type_link", "collection", *list_display[1:])


@admin.register(Limit)
class LimitAdmin(ControlAdmin):
    list_display = (
        *("subject", "max_running", "max_running_per_collection", "rate", "burst", "weight"),
        *("max_waiting", "max_wait", "is_set", "who"),
        time_column("since"),
    )
    fields = (
        *("subject", "type_link", "collection", *list_display[1:], "tokens"),
        time_column("refilled"),
    )


# Tailers and their cursors


@admin.register(Tailer)
class TailerAdmin(ReadOnlyAdmin):
    ordering = ("identifier",)
    list_display = (
        *("identifier", "source", time_column("read_at")),
        *("records", "enqueued", "rejected", "behind", "gaps", "lost", "passed_over", "skipped"),
    )
    search_fields = ("identifier",)
    fields = (*list_display, time_column("lost_at"), "notes", "error")


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    ordering = ("tailer", "shard")
    list_display = (
        *("tailer", "shard", "position"),
        *(time_column("moved"), time_column("missing_since")),
    )
    search_fields = ("tailer", "shard")
    fields = list_display
