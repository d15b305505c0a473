"""Graphs in the API: a list, a single graph, its nodes, and its picture as text."""

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, is_uuid, with_verbs
from ..api.problems import AnyAccept
from ..api.schema import Filters, Pages, named, operation, page_of, query_of
from ..api.serializers import Document
from ..exceptions import UnknownGraph
from ..models import Graph
from ..operations.table import GRAPH, VERBS
from ..states import Reason, State
from ..web.filters import GraphFilter, NodeFilter
from ..web.permissions import VIEW_GRAPH
from . import reports
from .drawing import mermaid

TEXT = "text/plain"


class StateCountsSerializer(rest.Serializer):
    accepted = schema.count()
    scheduled = schema.count()
    running = schema.count()
    paused = schema.count()
    finished = schema.count()
    failed = schema.count()


class GraphsSerializer(rest.ListSerializer):
    """A list of graphs. The nodes of all of them are counted at once."""

    def to_representation(self, data):
        urls = self.child.context["view"]
        return [_document(urls, each) for each in reports.documents(data)]


class GraphSerializer(Document):
    uuid = rest.UUIDField()
    name = schema.text("Name of the graph; empty if it has none.")
    state = schema.text(
        "Waiting (no node is claimed), running, finished, failed, undoing or undone. In a list, a "
        "graph with `is_more` is only running or ended."
    )
    nodes = schema.count("The number of nodes; in a list, not all nodes of a large graph.")
    is_more = schema.flag("Whether the graph is too large for a list to count its nodes by state.")
    counts = StateCountsSerializer(help_text="The number of nodes by state.")
    request = schema.text("The request to all its nodes, as `cancel`; otherwise empty.")
    undone = schema.time("When the undo of the failed graph began; otherwise null.", null=True)
    created = schema.time()
    created_by = schema.text("Who has made it, and through which channel.")
    ended = schema.time("Some time after its last node has ended; null before.", null=True)
    url = rest.URLField(help_text="Its own address.")
    actions = schema.texts(
        "Actions that the state allows: names of addresses below its own. Not given in lists."
    )

    class Meta:
        list_serializer_class = GraphsSerializer

    def to_representation(self, instance):
        document = reports.document(instance, reports.counts_of(instance))
        return _document(self.context["view"], document) | {"actions": _actions(instance)}


def _actions(graph):
    return [verb.name for verb in VERBS[GRAPH].values() if verb.is_allowed(graph)]


def _document(view, document):
    return document | {"url": view.url("graphs-detail", document["uuid"])}


class NodesSerializer(rest.ListSerializer):
    """A list of nodes. One query reads the Tasks of all of them."""

    def to_representation(self, data):
        return reports.node_documents(data)


class NodeSerializer(Document):
    name = schema.text("Unique in its graph.")
    type = schema.text("Identifier of its Type.")
    instance = rest.UUIDField(help_text="Uuid of the Instance.")
    state = schema.word(State)
    reason = schema.word(["", *Reason], "Why it FAILED; otherwise empty.")
    waits = schema.count("The number of nodes that it waits for.")
    undoes = schema.text("The name of the node that it undoes; otherwise empty.")

    class Meta:
        list_serializer_class = NodesSerializer


@with_verbs(
    GRAPH,
    VIEW_GRAPH,
    lambda verb: (f"{verb.id}_graph", verb.said_of("a graph"), verb.explanation),
)
class GraphViewSet(ViewSet):
    tag = "graphs"
    lookup_field = "uuid"
    model = Graph
    serializer_class = GraphSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = GraphFilter
    named = (named("uuid", "The graph's uuid.", type="string", format="uuid"),)

    def find(self):
        """Return the graph whose uuid is in the URL. Raises UnknownGraph."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownGraph(f"{uuid!r} is not a uuid, so there is no such graph.")
        return queue.get_graph(uuid)

    def answer(self, graph, outcome):
        return Response(self.get_serializer(self.get_object()).data)

    @operation("list_graphs", "Graphs, newest first", VIEW_GRAPH, query=query_of(GraphFilter))
    def list(self, request):
        return self.listed(self.filter_queryset(self.narrowed(reports.graphs())))

    @operation("get_graph", "One graph, with its nodes counted by state", VIEW_GRAPH)
    def retrieve(self, request, uuid):
        return Response(self.get_serializer(self.get_object()).data)

    @operation(
        "list_nodes",
        "The nodes of a graph, in the order of their Instances",
        VIEW_GRAPH,
        query=query_of(NodeFilter),
        answer=page_of(NodeSerializer),
    )
    @action(detail=True, serializer_class=NodeSerializer, filterset_class=NodeFilter)
    def nodes(self, request, uuid):
        return self.listed(self.filter_queryset(reports.nodes(self.get_object())))

    @operation(
        "draw_graph",
        "The picture of a graph, as text for Mermaid",
        VIEW_GRAPH,
        description="More than 20 nodes of one Type and layer are drawn as one box.",
        answer={(200, TEXT): OpenApiTypes.STR},
    )
    @action(
        detail=True,
        url_path="graph.mmd",
        url_name="mermaid",
        content_negotiation_class=AnyAccept,
    )
    def mermaid(self, request, uuid):
        found = reports.drawable(self.get_object())
        if found is None:
            raise Http404(reports.TOO_LARGE)
        return HttpResponse(mermaid(*found), content_type=f"{TEXT}; charset=utf-8")
