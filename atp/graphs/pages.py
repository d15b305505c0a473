"""The pages of graphs: a list, a single graph with its picture, and its nodes."""

from collections import defaultdict

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.http import urlencode

from .. import queue
from ..models import Graph
from ..operations.table import GRAPH, VERBS
from ..pages.base import Page
from ..pages.instances import query_without_page
from ..reports import documents, overview, paging
from ..states import LIVE, State
from ..web import permissions
from ..web.filters import GraphFilter, NodeFilter, selected
from . import reports
from .drawing import drawn, mermaid

PAGE_SIZE, NODES = 25, 50
# Pairs: up to so many nodes, a picture refreshes itself every so many seconds.
_REFRESHED = ((500, 2), (5_000, 5))
_RARELY = 15
# The order of the nodes below a picture: failed, at work, waiting, finished.
_FIRST = (*(State.FAILED, State.RUNNING, State.PAUSED, State.SCHEDULED), State.ACCEPTED)


class GraphsPage(Page):
    permissions = (permissions.VIEW_GRAPH,)
    template_name = "atp/graphs.html"
    parameters = (*GraphFilter.base_filters, "page")

    def get(self, request):
        filters = selected(
            GraphFilter, request.GET, self.narrowed(reports.graphs()), others=("page",)
        )
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("-id",), size=PAGE_SIZE, key=key)
        counted = reports.counts(page.rows)
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

    def get(self, request, uuid):
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        found = reports.drawable(graph)
        context = self._drawn(graph, *found) if found else {"types": reports.counts_by_type(graph)}
        counts = reports.counts_in(found[0]) if found else reports.counts_of(graph)
        every = next((e for most, e in _REFRESHED if counts.nodes <= most), _RARELY)
        return self.show(
            now=overview.now(),
            graph=graph,
            state=reports.state(graph, counts),
            counts=counts,
            every=every if counts.live or graph.undo_pending else None,
            verbs=self._verbs(graph),
            **context,
        )

    @cached_property
    def may_see_nodes(self):
        """Whether the user may see the Instances of all nodes."""
        return self.may(permissions.VIEW_INSTANCE)

    def _drawn(self, graph, vertices, links):
        """Return the context: the picture, the address of each box, and the first nodes."""
        drawing = drawn(vertices, links)
        first = sorted(vertices, key=lambda vertex: _rank(vertex.state))[:NODES]
        waiting = {vertex.key for vertex in first if vertex.waits}
        return {
            "drawing": drawing,
            "boxes": [(each, self._address(graph, each.box)) for each in drawing.boxes],
            "vertices": [(vertex, told) for vertex, told in _told(first, waiting, vertices, links)],
            "is_cut": len(vertices) > NODES,
        }

    def _address(self, graph, box):
        """Return the address of a box: the Instance of its node, or the list of its nodes."""
        if box.vertex is None:
            query = f"?{urlencode({'type': box.type})}" if box.type else ""
            return reverse("atp:nodes", args=[graph.uuid]) + query
        if not self.may_see_nodes:
            return None
        return reverse("atp:instance", args=[box.vertex.uuid])

    def _verbs(self, graph):
        verbs = VERBS[GRAPH].values()
        return [verb for verb in verbs if verb.is_allowed(graph) and self.may(*verb.needs)]


def _rank(state):
    return _FIRST.index(state) if state in _FIRST else len(_FIRST)


def _told(first, waiting, vertices, links):
    """Yield each node with a sentence about the nodes that it waits for, "" if it does not."""
    of = {vertex.key: vertex for vertex in vertices}
    names = defaultdict(list)
    for link in links:
        upstream = of.get(link.upstream)
        if link.downstream in waiting and upstream is not None and not _satisfies(upstream, link):
            names[link.downstream].append(upstream.name)
    for vertex in first:
        named = names[vertex.key][:1]
        yield vertex, documents.blocked_sentence(named, vertex.waits) if vertex.waits else ""


def _satisfies(upstream, link):
    return upstream.state == State.FINISHED or (link.always and upstream.state not in LIVE)


class NodesPage(Page):
    """The page of a graph's nodes, in the order of their Instances, NODES at a time."""

    permissions = (permissions.VIEW_GRAPH,)
    template_name = "atp/nodes.html"
    parameters = (*NodeFilter.base_filters, "page")

    def get(self, request, uuid):
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        filters = selected(NodeFilter, request.GET, reports.nodes(graph), others=("page",))
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

    def get(self, request, uuid):
        graph = self.look_up(Graph, uuid, lambda: queue.get_graph(uuid))
        found = reports.drawable(graph)
        if found is None:
            raise Http404(reports.TOO_LARGE)
        answer = HttpResponse(mermaid(*found), content_type="text/plain; charset=utf-8")
        answer.headers["Content-Disposition"] = f'attachment; filename="{graph.uuid}.mmd"'
        return answer
