"""Convert graphs and nodes to documents, count nodes by state, and read what is drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from uuid import UUID

from django.db.models import Count, OuterRef, QuerySet

from ..conf import settings
from ..models import Edge, Graph, Node, Task
from ..querysets import RowCount
from ..states import LIVE, State
from .drawing import ORDER, Link, Vertex
from .models import Condition, graph_state

# The maxima: nodes and edges of a drawn graph; nodes that a list counts by state, for one graph
# and for all graphs together.
MOST_NODES, MOST_EDGES, MOST_COUNTED, MOST_IN_ALL = 20_000, 100_000, 20_000, 50_000
TOO_LARGE = f"A graph of more than {MOST_NODES:,} nodes or {MOST_EDGES:,} edges is not drawn."
FIELDS = ("uuid", "name", "created", "created_by", "ended", "request", "undone")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The number of nodes of a graph, in total and by state.

    In a list of graphs, ``nodes`` is at most MOST_COUNTED, and ``is_more`` is True if the nodes of
    this graph were not counted by state. ``not_undone`` is the number of undo nodes that FAILED.
    """

    nodes: int
    states: Counter[str]
    is_more: bool = False
    not_undone: int = 0

    @property
    def live(self) -> int:
        return sum(self.states[state] for state in LIVE)

    def by_state(self) -> list[tuple[str, int]]:
        """Return each state that occurs, with the number of its nodes."""
        return [(state, self.states[state]) for state in ORDER if self.states[state]]


def graphs() -> QuerySet[Graph]:
    """Return all graphs, newest first."""
    return Graph.objects.using(settings.DATABASE).order_by("-id")


def graphs_by_prefix(prefix: str) -> QuerySet[Graph]:
    """Return the graphs whose uuid starts with these hexadecimal digits; hyphens are ignored."""
    digits = prefix.replace("-", "")
    return graphs().filter(
        uuid__gte=UUID(digits.ljust(32, "0")), uuid__lte=UUID(digits.ljust(32, "f"))
    )


def state(graph: Graph, counts: Counts) -> str:
    """Return the state of a graph in one word; see :attr:`atp.models.Graph.state`.

    A graph whose nodes were not counted by state is "running" or "ended".
    """
    if counts.is_more:
        return "running" if graph.ended is None else "ended"
    return graph_state(graph, counts.states, counts.not_undone)


def counts_of_graphs(rows: Sequence[Graph]) -> dict[int, Counts]:
    """Return the Counts of some graphs by primary key, in two queries.

    If these graphs together have more than MOST_IN_ALL nodes, the nodes of the largest graphs are
    not counted by state.
    """
    nodes = _nodes().filter(graph=OuterRef("pk")).order_by()
    sizes = dict(
        Graph.objects.using(settings.DATABASE)
        .filter(pk__in=[row.pk for row in rows])
        .order_by()
        .values_list("pk", RowCount(nodes.values("pk")[: MOST_COUNTED + 1]))
    )
    by_size = sorted((size, key) for key, size in sizes.items() if size <= MOST_COUNTED)
    sums = accumulate(size for size, _ in by_size)
    small = {key for (_, key), total in zip(by_size, sums, strict=True) if total <= MOST_IN_ALL}
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    grouped = _nodes().filter(graph__in=small).order_by().values_list("graph", "instance__state")
    for key, state, number in grouped.annotate(n=Count("pk")):
        found[key][state] += number
    undone = [row.pk for row in rows if row.undone is not None]
    failed = _not_undone().filter(graph__in=undone) if undone else None
    not_undone = Counter(() if failed is None else failed.values_list("graph", flat=True))
    return {
        key: Counts(
            nodes=min(size, MOST_COUNTED),
            states=found[key],
            is_more=key not in small,
            not_undone=not_undone[key],
        )
        for key, size in sizes.items()
    }


def counts_of(graph: Graph) -> Counts:
    """Return the Counts of a graph of any size."""
    own = _nodes().filter(graph=graph).order_by().values_list("instance__state")
    states = Counter(dict(own.annotate(n=Count("pk"))))
    undone = graph.undone is not None
    not_undone = _not_undone().filter(graph=graph).count() if undone else 0
    return Counts(nodes=states.total(), states=states, not_undone=not_undone)


def counts_in(vertices: Iterable[Vertex]) -> Counts:
    """Return the Counts of nodes that have already been read from the database."""
    found = Counter((vertex.state, vertex.is_undo) for vertex in vertices)
    states: Counter[str] = Counter()
    for (state, _), number in found.items():
        states[state] += number
    not_undone = found[State.FAILED, True]
    return Counts(nodes=states.total(), states=states, not_undone=not_undone)


def counts_by_type(graph: Graph) -> dict[str, Counts]:
    """Return the Counts of a graph's nodes for each Type, by identifier."""
    own = _nodes().filter(graph=graph).order_by()
    grouped = own.values_list("instance__type__identifier", "instance__state")
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for type, state, number in grouped.annotate(n=Count("pk")):
        found[type][state] += number
    return {
        type: Counts(nodes=states.total(), states=states) for type, states in sorted(found.items())
    }


def documents(rows: Sequence[Graph]) -> list[dict[str, Any]]:
    """Return graphs as documents, with the numbers of their nodes."""
    counted = counts_of_graphs(rows)
    return [document(row, counted[row.pk]) for row in rows]


def document(graph: Graph, counts: Counts) -> dict[str, Any]:
    """Return a graph as a document."""
    return {name: getattr(graph, name) for name in FIELDS} | {
        "state": state(graph, counts),
        "nodes": counts.nodes,
        "is_more": counts.is_more,
        "counts": {each.lower(): counts.states[each] for each in ORDER},
    }


def drawable(graph: Graph) -> tuple[list[Vertex], list[Link]] | None:
    """Return the nodes and edges of a graph, in two queries; None if there are too many to draw."""
    nodes = _nodes().filter(graph=graph).order_by("pk")
    found = nodes.values_list(
        *("instance_id", "name", "instance__type__identifier", "instance__state"),
        *("instance__reason", "instance__task__waits", "instance__uuid", "undoes"),
    )[: MOST_NODES + 1]
    vertices = [
        Vertex(key, name, type, state, reason, waits or 0, uuid, undoes is not None)
        for key, name, type, state, reason, waits, uuid, undoes in found
    ]
    edges = _edges().filter(downstream__graph=graph).order_by()
    pairs = edges.values_list("upstream_id", "downstream_id", "on")[: MOST_EDGES + 1]
    links = [Link(up, down, on == Condition.ENDED) for up, down, on in pairs]
    if len(vertices) > MOST_NODES or len(links) > MOST_EDGES:
        return None
    return vertices, links


def nodes(graph: Graph) -> QuerySet[Node]:
    """Return the nodes of a graph with their Instances and Types, in the order of the Instances."""
    own = _nodes().filter(graph=graph)
    return own.select_related("instance__type").order_by("instance_id")


def node_documents(rows: Sequence[Node]) -> list[dict[str, Any]]:
    """Return nodes of one graph as documents.

    ``waits`` is the number of nodes that the node waits for. ``undoes`` is the name of the node
    that it undoes, or "".
    """
    undone = _nodes().filter(pk__in=[row.undoes for row in rows if row.undoes is not None])
    names = dict(undone.values_list("pk", "name"))
    tasks = Task.objects.using(settings.DATABASE).filter(pk__in=[row.pk for row in rows])
    waits = dict(tasks.values_list("pk", "waits"))
    return [
        {
            "name": row.name,
            "type": row.instance.type.identifier,
            "instance": row.instance.uuid,
            "state": row.instance.state,
            "reason": row.instance.reason,
            "waits": waits.get(row.pk) or 0,
            "undoes": "" if row.undoes is None else names.get(row.undoes, ""),
        }
        for row in rows
    ]


def _nodes() -> QuerySet[Node]:
    return Node.objects.using(settings.DATABASE)


def _not_undone() -> QuerySet[Node]:
    """Return the undo nodes that FAILED."""
    return _nodes().filter(undoes__isnull=False, instance__state=State.FAILED).order_by()


def _edges() -> QuerySet[Edge]:
    return Edge.objects.using(settings.DATABASE)
