"""Submit, cancel, redrive a graph; results of nodes; their entries in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from ..commands import CANCEL
from ..conf import settings
from ..exceptions import IllegalTransition, UnknownGraph
from ..models import Graph, Node, Task
from ..operations.base import check_by, needs_tables
from ..operations.operation import Verb
from ..states import TERMINAL, State
from ..store import get_store
from .models import REDRIVABLE, NodeResult, result_of
from .plan import GraphPlan

if TYPE_CHECKING:
    from django.db.models import QuerySet


# The verbs of graphs: submit, cancel, redrive, and read the results of nodes.

# The maximum number of names in one query.
_MOST = 5000

# A Graph, or its uuid.
GraphLike = Graph | UUID | str


@needs_tables
def get_graph(uuid: UUID | str) -> Graph:
    """Return the graph of this uuid. Raises UnknownGraph."""
    try:
        found = Graph.objects.using(settings.DATABASE).filter(uuid=UUID(str(uuid))).first()
    except ValueError:
        raise UnknownGraph(f"{uuid!r} is not a uuid, so there is no such graph.") from None
    if found is None:
        raise UnknownGraph(f"There is no graph {uuid}.")
    return found


@needs_tables
def submit_graph(plan: GraphPlan) -> Graph:
    """Write a whole graph or nothing. A node can run once the nodes that it waits for have ended.

    The write is part of the caller's transaction. Raises InvalidGraph or DuplicateIdentifier.
    """
    return get_store().graphs.submit(plan.checked())


@needs_tables
def cancel_graph(graph: GraphLike, by: str = "") -> int:
    """Cancel all live nodes of a graph; return their number, with those whose holder was asked.

    Waiting nodes become FAILED at once, with the reason CANCELLED or UPSTREAM. Raises
    IllegalTransition, with nothing written, if no node is live, or if the holders of all live
    nodes have been asked already.
    """
    graph, count = _meant(graph, by), 0
    if is_cancellable(graph):
        done = get_store().graphs.cancel(graph.pk, who=by)
        count = len(done.failed) + len(done.asked)
    if not count:
        is_asked = _live(graph).exists()
        why = "its live nodes have been asked to be already" if is_asked else "it has no live node"
        raise IllegalTransition(f"The graph {graph} cannot be cancelled: {why}.")
    return count


def is_cancellable(graph: Graph) -> bool:
    """Whether the graph has a live node whose holder has not been asked to cancel it; one query."""
    return _live(graph).exclude(daemon__isnull=False, request=CANCEL).exists()


@needs_tables
def redrive_graph(graph: GraphLike, by: str = "") -> int:
    """Send all FAILED nodes of a graph back to the queue; return their number.

    They wait for each other as before. Nodes that FINISHED are not run again. Once the undoing of
    a graph has begun, only its FAILED undoing nodes are sent back. Raises IllegalTransition, with
    nothing written, if there is no such node.
    """
    graph = _meant(graph, by)
    if not is_redrivable(graph):
        none = "none of it is FAILED" if graph.undone is None else "it has been undone"
        raise IllegalTransition(f"The graph {graph} cannot be redriven: {none}.")
    count = get_store().graphs.redrive(graph.pk, who=by)
    if not count:
        raise IllegalTransition(
            f"The graph {graph} cannot be redriven: somebody was quicker, or it is being removed."
        )
    return count


def is_redrivable(graph: Graph) -> bool:
    """Whether the graph has a FAILED node that may be redriven; one query."""
    nodes = Node.objects.using(settings.DATABASE).filter(REDRIVABLE, graph=graph.pk)
    return nodes.filter(instance__state=State.FAILED).exists()


def _meant(graph: GraphLike, by: str) -> Graph:
    check_by(by)
    return graph if isinstance(graph, Graph) else get_graph(graph)


def _live(graph: Graph) -> QuerySet[Task]:
    return Task.objects.using(settings.DATABASE).filter(instance__node__graph=graph.pk)


def node_of(instance: int) -> Node | None:
    """Return the node of an Instance, by its key, with its graph; None if it is in no graph.

    An Instance that waits in the line of a schedule has a Node, but no graph: None too.
    """
    nodes = Node.objects.using(settings.DATABASE).select_related("graph")
    return nodes.filter(pk=instance, graph__isnull=False).first()


def undone_by(instance: int) -> NodeResult | None:
    """Return the result of the node that an Instance undoes; None if the Instance undoes none."""
    nodes = Node.objects.using(settings.DATABASE)
    undone = nodes.filter(pk__in=nodes.filter(pk=instance).values("undoes"))
    found = undone.select_related("instance__response").first()
    return None if found is None else result_of(found)


def results_of(instance: int, names: Iterable[str] | None = None) -> dict[str, NodeResult]:
    """Return the results of other nodes in the graph of an Instance, by name.

    With ``names``, return the results of these nodes, otherwise of all nodes that have ended. It
    takes one query for each 5,000 names. An Instance that is in no graph has no results.
    """
    return {name: result_of(node) for name, node in nodes_beside(instance, names).items()}


def nodes_beside(instance: int, names: Iterable[str] | None = None) -> dict[str, Node]:
    """Return the nodes that :func:`results_of` reads, by name; their responses are not opened."""
    nodes = Node.objects.using(settings.DATABASE)
    own = nodes.filter(graph__in=nodes.filter(pk=instance).values("graph"))
    own = own.select_related("instance__response").order_by()
    if names is None:
        return {node.name: node for node in own.filter(instance__state__in=TERMINAL)}
    wanted = list(names)
    found: dict[str, Node] = {}
    for start in range(0, len(wanted), _MOST):
        some = own.filter(name__in=wanted[start : start + _MOST])
        found |= {node.name: node for node in some}
    return found


# The verbs on graphs: each applies to all nodes of one graph.


@dataclass(frozen=True, kw_only=True)
class GraphVerb(Verb):
    """A verb on a graph. ``is_allowed(graph)`` tells whether it would change anything."""

    is_allowed: Callable[[Graph], bool]


VERBS = (
    GraphVerb(
        name="cancel",
        label="Cancel",
        explanation="Cancel all nodes of the graph that have not ended. Running ones are "
        "interrupted, and killed if they do not stop.",
        call=cancel_graph,
        told=lambda _, count: f"Nodes cancelled: {count}. A daemon ends the nodes that it holds.",
        # If the graph has ended, no query of its nodes is needed.
        is_allowed=lambda graph: graph.ended is None and is_cancellable(graph),
        asks_first=lambda _: True,
    ),
    GraphVerb(
        name="redrive",
        label="Redrive",
        explanation="Send all FAILED nodes of the graph back to the queue, where they wait for "
        "each other as before. FINISHED nodes are not run again.",
        call=redrive_graph,
        told=lambda _, count: f"Nodes back in the queue: {count}.",
        is_allowed=is_redrivable,
    ),
)
