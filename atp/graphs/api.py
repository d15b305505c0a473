"""The REST API for graphs: list and read them, their nodes, and their pictures as text."""

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, is_uuid, with_operations
from ..api.problems import AnyAccept
from ..api.schema import Filters, Pages, endpoint, page_of, path_parameter, query_of
from ..api.serializers import DocumentSerializer
from ..exceptions import UnknownGraph
from ..models import Graph, Node
from ..operations.operation import Outcome
from ..operations.table import GRAPH, OPERATIONS
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
    """Serializes a list of graphs, and counts the nodes of all these graphs together."""

    def to_representation(self, data: Sequence[Graph]) -> list[dict[str, Any]]:
        view = self.child.context["view"]
        return [_document_with_url(view, each) for each in reports.documents(data)]


class GraphSerializer(DocumentSerializer):
    uuid = rest.UUIDField()
    name = schema.text("Name of the graph; empty if it has none.")
    state = schema.text(
        "Waiting (no node is claimed), running, finished, failed, undoing or undone. In a list, a "
        "graph with `is_more` is only running or ended."
    )
    nodes = schema.count("The number of nodes; in a list, not all nodes of a large graph.")
    is_more = schema.flag("True if the graph is too large for a list to count its nodes by state.")
    counts = StateCountsSerializer(help_text="The number of nodes by state.")
    request = schema.text(
        "The command to all nodes of the graph, such as `cancel`; otherwise empty."
    )
    undone = schema.time("When the undo of the failed graph began; otherwise null.", null=True)
    created = schema.time()
    created_by = schema.text("Who created the graph, and through which channel.")
    ended = schema.time("Set some time after the last node has ended; null before.", null=True)
    url = rest.URLField(help_text="URL of the graph.")
    actions = schema.texts(
        "Actions that the state allows, as last parts of their URLs. Not given in lists."
    )

    class Meta:
        list_serializer_class = GraphsSerializer

    def to_representation(self, instance: Graph) -> dict[str, Any]:
        document = reports.document(instance, reports.counts_of(instance))
        actions = [each.name for each in OPERATIONS[GRAPH].values() if each.is_allowed(instance)]
        return _document_with_url(self.context["view"], document) | {"actions": actions}


def _document_with_url(view: ViewSet, document: dict[str, Any]) -> dict[str, Any]:
    return document | {"url": view.url("graphs-detail", document["uuid"])}


class NodesSerializer(rest.ListSerializer):
    """Serializes a list of nodes, and reads the Tasks of all these nodes in one query."""

    def to_representation(self, data: Sequence[Node]) -> list[dict[str, Any]]:
        return reports.node_documents(data)


class NodeSerializer(DocumentSerializer):
    name = schema.text("Name of the node, unique in its graph.")
    type = schema.text("Identifier of its Type.")
    instance = rest.UUIDField(help_text="Uuid of the Instance.")
    state = schema.word(State)
    reason = schema.word(["", *Reason], "Why the Instance FAILED; otherwise empty.")
    waits = schema.count("The number of nodes that this node waits for.")
    undoes = schema.text("Name of the node that this node undoes; otherwise empty.")

    class Meta:
        list_serializer_class = NodesSerializer


@with_operations(
    GRAPH,
    VIEW_GRAPH,
    lambda each: (f"{each.id}_graph", each.said_of("a graph"), each.explanation),
)
class GraphViewSet(ViewSet):
    tag = "graphs"
    lookup_field = "uuid"
    model = Graph
    serializer_class = GraphSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = GraphFilter
    path_parameters = (path_parameter("uuid", "The graph's uuid.", type="string", format="uuid"),)

    def find(self) -> Graph:
        """Return the graph whose uuid is in the URL. Raises UnknownGraph."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownGraph(f"{uuid!r} is not a uuid, so there is no such graph.")
        return queue.get_graph(uuid)

    def answer(self, graph: Graph, outcome: Outcome) -> Response:
        return Response(self.get_serializer(self.get_object()).data)

    @endpoint("list_graphs", "Graphs, newest first", VIEW_GRAPH, query=query_of(GraphFilter))
    def list(self, request: Request) -> Response:
        return self.page_response(self.filter_queryset(self.visible_rows(reports.graphs())))

    @endpoint("get_graph", "One graph, with its nodes counted by state", VIEW_GRAPH)
    def retrieve(self, request: Request, uuid: str) -> Response:
        return Response(self.get_serializer(self.get_object()).data)

    @endpoint(
        "list_nodes",
        "The nodes of a graph, in the order of their Instances",
        VIEW_GRAPH,
        query=query_of(NodeFilter),
        answer=page_of(NodeSerializer),
    )
    @action(detail=True, serializer_class=NodeSerializer, filterset_class=NodeFilter)
    def nodes(self, request: Request, uuid: str) -> Response:
        return self.page_response(self.filter_queryset(reports.nodes(self.get_object())))

    @endpoint(
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
    def mermaid(self, request: Request, uuid: str) -> HttpResponse:
        graph = reports.drawable(self.get_object())
        if graph is None:
            raise Http404(reports.TOO_LARGE)
        return HttpResponse(mermaid(*graph), content_type=f"{TEXT}; charset=utf-8")
