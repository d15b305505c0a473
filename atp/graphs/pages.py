"""The pages for graphs: a list, a page with the picture of each graph, and lists of nodes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.http import urlencode

from .. import queue
from ..models import Graph
from ..operations.table import GRAPH, OPERATIONS
from ..pages.base import Page, query_without_page
from ..reports import documents, overview, paging
from ..states import LIVE, State
from ..web import permissions
from ..web.filters import GraphFilter, NodeFilter, bind_filters
from . import reports
from .drawing import Box, Link, Vertex, draw, mermaid

PAGE_SIZE, NODES = 25, 50
# Pairs: a number of nodes, and how many seconds later a picture of at most that many refreshes.
_REFRESH = ((500, 2), (5_000, 5))
# The seconds for a picture of more nodes.
_REFRESH_LARGE = 15
# The order of the nodes below a picture: failed, at work, waiting, finished.
_FIRST = (*(State.FAILED, State.RUNNING, State.PAUSED, State.SCHEDULED), State.ACCEPTED)


class GraphsPage(Page):
    permissions = (permissions.VIEW_GRAPH,)
    template_name = "atp/graphs.html"
    parameters = (*GraphFilter.base_filters, "page")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        filters = bind_filters(
            GraphFilter, request.GET, self.narrow_rows(reports.graphs()), others=("page",)
        )
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("-id",), size=PAGE_SIZE, key=key)
        counted = reports.counts_of_graphs(page.rows)
        for row in page.rows:
            row.node_counts = counted[row.pk]
            row.state_word = reports.state(row, row.node_counts)
        return self.show(
            now=overview.now(),
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            page=page,
            is_first=key is None,
            query=query_without_page(request),
        )


class GraphPage(Page):
    permissions = (permissions.VIEW_GRAPH,)
    template_name = "atp/graph.html"

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        found = reports.drawable(graph)
        context: dict[str, Any]
        if found:
            context = self._draw(graph, *found)
            counts = reports.counts_in(found[0])
        else:
            context = {"types": reports.counts_by_type(graph)}
            counts = reports.counts_of(graph)
        every = next(
            (seconds for most, seconds in _REFRESH if counts.nodes <= most), _REFRESH_LARGE
        )
        return self.show(
            now=overview.now(),
            graph=graph,
            state=reports.state(graph, counts),
            counts=counts,
            every=every if counts.live or graph.undo_pending else None,
            verbs=self._allowed_operations(graph),
            **context,
        )

    @cached_property
    def may_see_nodes(self) -> bool:
        """True if the user may see the Instances of all nodes."""
        return self.may(permissions.VIEW_INSTANCE)

    def _draw(
        self, graph: Graph, vertices: Collection[Vertex], links: Collection[Link]
    ) -> dict[str, Any]:
        """Return the template context: the picture, the link for each box, and the first nodes."""
        drawing = draw(vertices, links)
        first = sorted(vertices, key=lambda vertex: _rank(vertex.state))[:NODES]
        waiting = {vertex.key for vertex in first if vertex.waits}
        return {
            "drawing": drawing,
            "boxes": [(each, self._address(graph, each.box)) for each in drawing.boxes],
            "vertices": list(_describe_waits(first, waiting, vertices, links)),
            "is_cut": len(vertices) > NODES,
        }

    def _address(self, graph: Graph, box: Box) -> str | None:
        """Return the address to which a box links: the node's Instance, or the list of nodes.

        Return None if the user may not see the Instance.
        """
        if box.vertex is None:
            query = f"?{urlencode({'type': box.type})}" if box.type else ""
            return reverse("atp:nodes", args=[graph.uuid]) + query
        if not self.may_see_nodes:
            return None
        return reverse("atp:instance", args=[box.vertex.uuid])

    def _allowed_operations(self, graph: Graph) -> list[Any]:
        verbs = OPERATIONS[GRAPH].values()
        return [verb for verb in verbs if verb.is_allowed(graph) and self.may(*verb.needs)]


def _rank(state: str) -> int:
    return _FIRST.index(state) if state in _FIRST else len(_FIRST)


def _describe_waits(
    first: Iterable[Vertex],
    waiting: Collection[int],
    vertices: Iterable[Vertex],
    links: Iterable[Link],
) -> Iterator[tuple[Vertex, str]]:
    """Yield each node with a sentence about the nodes that it waits for, "" if there are none."""
    by_key = {vertex.key: vertex for vertex in vertices}
    names = defaultdict(list)
    for link in links:
        upstream = by_key.get(link.upstream)
        if link.downstream in waiting and upstream is not None and not _satisfies(upstream, link):
            names[link.downstream].append(upstream.name)
    for vertex in first:
        first_name = names[vertex.key][:1]
        yield vertex, documents.describe_blocked(first_name, vertex.waits) if vertex.waits else ""


def _satisfies(upstream: Vertex, link: Link) -> bool:
    """Return True if this upstream node, in its state, no longer blocks the downstream node."""
    return upstream.state == State.FINISHED or (link.always and upstream.state not in LIVE)


class NodesPage(Page):
    """The page that lists the nodes of a graph, in the order of their Instances."""

    permissions = (permissions.VIEW_GRAPH,)
    template_name = "atp/nodes.html"
    parameters = (*NodeFilter.base_filters, "page")

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        filters = bind_filters(NodeFilter, request.GET, reports.nodes(graph), others=("page",))
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("instance_id",), size=NODES, key=key)
        return self.show(
            now=overview.now(),
            graph=graph,
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            page=page,
            nodes=reports.node_documents(page.rows),
            is_first=key is None,
            query=query_without_page(request),
        )


class MermaidText(Page):
    """The download of a graph's picture as text for Mermaid."""

    permissions = (permissions.VIEW_GRAPH,)

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        found = reports.drawable(graph)
        if found is None:
            raise Http404(reports.TOO_LARGE)
        answer = HttpResponse(mermaid(*found), content_type="text/plain; charset=utf-8")
        answer.headers["Content-Disposition"] = f'attachment; filename="{graph.uuid}.mmd"'
        return answer
