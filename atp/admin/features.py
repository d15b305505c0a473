"""The admin for gates, limits, downstreams, schedules, graphs, tailers and error groups."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html

from ..downstreams import operations as downstreams
from ..graphs import reports as graphs
from ..models import (
    Cursor,
    Downstream,
    Edge,
    ErrorGroup,
    Failing,
    Failure,
    Gate,
    Graph,
    Instance,
    Limit,
    LogRecord,
    Node,
    Schedule,
    Slot,
    Tailer,
    Undo,
)
from ..operations.table import DOWNSTREAM, ERROR, GRAPH, SCHEDULE
from ..reports import documents, overview
from ..schedules import reports as schedules
from ..web import permissions
from ..web.permissions import may_see_errors
from .base import (
    OperationActions,
    ReadOnlyAdmin,
    describe_inputs,
    describe_json,
    html_list,
    link_column,
    time_column,
    truncate,
)

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
