"""Gates, limits, downstreams, schedules, graphs, tailers, error groups."""

from django.contrib import admin
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
from . import base as shown
from .base import ReadOnlyAdmin, VerbActions, link_to

# Downstreams in the admin.

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


# Error groups in the admin.

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


# Graphs, their nodes and edges in the admin.

CREATED, ENDED = shown.time_of("created"), shown.time_of("ended")


@admin.register(Graph)
class GraphAdmin(VerbActions, ReadOnlyAdmin):
    kind = GRAPH
    list_display = ("uuid", "name", "created_by", CREATED, ENDED, "request")
    search_fields = ("name",)
    fields = (
        *("uuid", "name", "created_by", CREATED, ENDED, "request", shown.time_of("undone")),
        *("by_state", "node_list"),
    )
    readonly_fields = ("uuid", "by_state", "node_list")

    @admin.display(description="nodes by state")
    def by_state(self, row):
        counts = graphs.counts_of(row).by_state()
        return ", ".join(f"{count} {state}" for state, count in counts) or None

    @admin.display(description="nodes")
    def node_list(self, row):
        url = self.address(Node, "changelist", graph__id__exact=row.pk)
        return format_html('<a href="{}">the nodes of this graph</a>', url)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = (
        *("name", "graph_link", "schedule_link", "instance_link"),
        shown.time_of("not_before"),
    )
    list_select_related = ("graph", "schedule", "instance__type")
    search_fields = ("name",)
    fields = (*list_display, "edges")
    readonly_fields = ("graph_link", "schedule_link", "instance_link", "edges")

    graph_link = link_to("graph")
    schedule_link = link_to("schedule")

    instance_link = link_to("instance", "Instance")

    @admin.display(description="edges")
    def edges(self, row):
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

    upstream_link = link_to("upstream")

    downstream_link = link_to("downstream")


@admin.register(Failing)
class FailingAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "node_link")
    list_select_related = ("node",)
    fields = ("node_link",)
    readonly_fields = ("node_link",)

    node_link = link_to("node")


@admin.register(Undo)
class UndoAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "node_link", "type", "collection", "priority")
    list_select_related = ("node", "type")
    _facts = ("node_link", "type", "collection", "priority", "created_by", "format")
    readonly_fields = ("node_link", "inputs_value")

    def get_fields(self, request, obj=None):
        may_see = permissions.holds(request.user, permissions.VIEW_INPUTS, obj)
        return [*self._facts, "inputs_value"] if may_see else self._facts

    @admin.display(description="inputs")
    def inputs_value(self, row):
        return shown.inputs(row)

    node_link = link_to("node")


# Schedules and their slots in the admin.

NEXT_AT, SCHEDULE_SINCE = (
    shown.time_of("next_at", "next slot"),
    shown.time_of("since", "last changed"),
)


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
        *(
            shown.time_of("paused_since"),
            shown.time_of("paused_until"),
            "is_set",
            "who",
            SCHEDULE_SINCE,
        ),
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
        return shown.plain(documents.entries_shown(row.hooks)) if row.hooks else None

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


# Gates and limits in the admin.


class ControlAdmin(ReadOnlyAdmin):
    """The admin of gates or limits; operators set them on the pages, not here."""

    ordering = ("subject",)
    list_select_related = ("type",)
    search_fields = ("subject",)
    readonly_fields = ("type_link",)

    type_link = link_to("type")


@admin.register(Gate)
class GateAdmin(ControlAdmin):
    list_display = (
        *("subject", "mode", "reason", "who"),
        *(shown.time_of("since"), shown.time_of("until")),
    )
    fields = ("subject", "type_link", "collection", *list_display[1:])


@admin.register(Limit)
class LimitAdmin(ControlAdmin):
    list_display = (
        *("subject", "max_running", "max_running_per_collection", "rate", "burst", "weight"),
        *("max_waiting", "max_wait", "is_set", "who"),
        shown.time_of("since"),
    )
    fields = (
        *("subject", "type_link", "collection", *list_display[1:], "tokens"),
        shown.time_of("refilled"),
    )


# Tailers and their cursors in the admin.


@admin.register(Tailer)
class TailerAdmin(ReadOnlyAdmin):
    ordering = ("identifier",)
    list_display = (
        *("identifier", "source", shown.time_of("read_at")),
        *("records", "enqueued", "rejected", "behind", "gaps", "lost", "passed_over", "skipped"),
    )
    search_fields = ("identifier",)
    fields = (*list_display, shown.time_of("lost_at"), "notes", "error")


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    ordering = ("tailer", "shard")
    list_display = (
        *("tailer", "shard", "position"),
        *(shown.time_of("moved"), shown.time_of("missing_since")),
    )
    search_fields = ("tailer", "shard")
    fields = list_display
