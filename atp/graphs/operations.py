"""Operations on graphs: submit, cancel and redrive them, and read the results of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from ..commands import CANCEL
from ..conf import settings
from ..exceptions import IllegalTransition, UnknownGraph
from ..models import Graph, Node, Task
from ..operations.base import check_actor, needs_tables
from ..operations.operation import Operation
from ..states import TERMINAL, State
from ..store import get_store
from .models import REDRIVABLE, NodeResult, result_of
from .plan import GraphPlan

if TYPE_CHECKING:
    from django.db.models import QuerySet

# The maximum number of names in one query.
_MOST = 5000

# A Graph, or its uuid.
GraphLike = Graph | UUID | str


@needs_tables
def get_graph(uuid: UUID | str) -> Graph:
    """Return the graph with this uuid. Raises UnknownGraph."""
    try:
        graph = Graph.objects.using(settings.DATABASE).filter(uuid=UUID(str(uuid))).first()
    except ValueError:
        raise UnknownGraph(f"{uuid!r} is not a uuid, so there is no such graph.") from None
    if graph is None:
        raise UnknownGraph(f"There is no graph {uuid}.")
    return graph


@needs_tables
def submit_graph(plan: GraphPlan) -> Graph:
    """Write a graph completely, or not at all if an exception is raised.

    A node can run after the nodes that it waits for have ended. The caller's transaction includes
    the write. Raises InvalidGraph or DuplicateIdentifier.
    """
    return get_store().graphs.submit(plan.checked())


@needs_tables
def cancel_graph(graph: GraphLike, by: str = "") -> int:
    """Cancel all live nodes of a graph, and return their number.

    Waiting nodes become FAILED at once, with the reason CANCELLED or UPSTREAM. The daemons that
    hold the other nodes get cancel commands. Raises IllegalTransition, and changes nothing, if no
    node is live, or if cancel commands to all live nodes exist already.
    """
    graph, count = _find_graph(graph, by), 0
    if is_cancellable(graph):
        done = get_store().graphs.cancel(graph.pk, who=by)
        count = len(done.failed) + len(done.asked)
    if not count:
        is_asked = _live(graph).exists()
        why = "its live nodes are being cancelled already" if is_asked else "it has no live node"
        raise IllegalTransition(f"The graph {graph} cannot be cancelled, because {why}.")
    return count


def is_cancellable(graph: Graph) -> bool:
    """Return True if at least one live node has no cancel command yet, in one query."""
    return _live(graph).exclude(daemon__isnull=False, request=CANCEL).exists()


@needs_tables
def redrive_graph(graph: GraphLike, by: str = "") -> int:
    """Send all FAILED nodes of a graph back to the queue, and return their number.

    The nodes wait for each other as before, and FINISHED nodes do not run again. If the undo of the
    graph has begun, only its FAILED undo nodes go back to the queue. Raises IllegalTransition, and
    changes nothing, if there is no node to redrive.
    """
    graph = _find_graph(graph, by)
    if not is_redrivable(graph):
        why = "none of its nodes is FAILED" if graph.undone is None else "it has been undone"
        raise IllegalTransition(f"The graph {graph} cannot be redriven, because {why}.")
    count = get_store().graphs.redrive(graph.pk, who=by)
    if not count:
        raise IllegalTransition(
            f"The graph {graph} cannot be redriven, because somebody else has redriven it, or "
            "because it is being removed."
        )
    return count


def is_redrivable(graph: Graph) -> bool:
    """Return True if at least one FAILED node of the graph can be redriven, in one query."""
    nodes = Node.objects.using(settings.DATABASE).filter(REDRIVABLE, graph=graph.pk)
    return nodes.filter(instance__state=State.FAILED).exists()


def _find_graph(graph: GraphLike, by: str) -> Graph:
    check_actor(by)
    return graph if isinstance(graph, Graph) else get_graph(graph)


def _live(graph: Graph) -> QuerySet[Task]:
    return Task.objects.using(settings.DATABASE).filter(instance__node__graph=graph.pk)


def get_node(instance: int) -> Node | None:
    """Return the node of an Instance, together with its graph; None if it is in no graph.

    ``instance`` is the primary key of the Instance. An Instance in the line of a schedule has a
    Node, but is in no graph.
    """
    nodes = Node.objects.using(settings.DATABASE).select_related("graph")
    return nodes.filter(pk=instance, graph__isnull=False).first()


def get_undone(instance: int) -> NodeResult | None:
    """Return the result of the node that an Instance undoes; None if it undoes no node."""
    nodes = Node.objects.using(settings.DATABASE)
    undone = nodes.filter(pk__in=nodes.filter(pk=instance).values("undoes"))
    node = undone.select_related("instance__response").first()
    return None if node is None else result_of(node)


def read_results(instance: int, names: Iterable[str] | None = None) -> dict[str, NodeResult]:
    """Return the results of nodes in the same graph as an Instance, by name.

    With ``names``, return the results of the nodes with these names, otherwise the results of all
    nodes that have ended. Takes one query for each 5,000 names. If the Instance is in no graph,
    return an empty dict.
    """
    return {name: result_of(node) for name, node in read_nodes(instance, names).items()}


def read_nodes(instance: int, names: Iterable[str] | None = None) -> dict[str, Node]:
    """Return the nodes for :func:`read_results` by name, without reading stored files."""
    nodes = Node.objects.using(settings.DATABASE)
    graph = nodes.filter(graph__in=nodes.filter(pk=instance).values("graph"))
    graph = graph.select_related("instance__response").order_by()
    if names is None:
        return {node.name: node for node in graph.filter(instance__state__in=TERMINAL)}
    wanted = list(names)
    beside: dict[str, Node] = {}
    for start in range(0, len(wanted), _MOST):
        some = graph.filter(name__in=wanted[start : start + _MOST])
        beside |= {node.name: node for node in some}
    return beside


# The entries of these operations in the table of operations. Each applies to all nodes of a graph.


@dataclass(frozen=True, kw_only=True)
class GraphOperation(Operation):
    """An operation on a graph, as an entry in the table of operations.

    ``is_allowed(graph)`` returns True if the operation would change something.
    """

    is_allowed: Callable[[Graph], bool]


OPERATIONS = (
    GraphOperation(
        name="cancel",
        label="Cancel",
        explanation="Cancel all nodes of the graph that have not ended. Running attempts are "
        "interrupted, and killed if they do not stop.",
        call=cancel_graph,
        told=lambda _, count: f"Nodes cancelled: {count}. A daemon ends the nodes that it holds.",
        # For an ended graph, do not query its nodes.
        is_allowed=lambda graph: graph.ended is None and is_cancellable(graph),
        asks_first=lambda _: True,
    ),
    GraphOperation(
        name="redrive",
        label="Redrive",
        explanation="Send all FAILED nodes of the graph back to the queue, where they wait for "
        "each other as before. FINISHED nodes do not run again.",
        call=redrive_graph,
        told=lambda _, count: f"Nodes back in the queue: {count}.",
        is_allowed=is_redrivable,
    ),
)
