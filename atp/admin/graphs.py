"""Graphs, their nodes and edges in the admin."""

from django.contrib import admin
from django.utils.html import format_html

from ..models import Edge, Failing, Graph, Node, Undo
from ..reports import graphs
from ..verbs.table import GRAPH
from ..web import permissions
from . import shown
from .base import ReadOnlyAdmin, link_to
from .verbs import VerbActions

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
