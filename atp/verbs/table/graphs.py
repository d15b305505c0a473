"""The verbs on graphs: each applies to all nodes of one graph."""

from collections.abc import Callable
from dataclasses import dataclass

from ...models import Graph
from .. import graphs
from .verb import Verb


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
        call=graphs.cancel_graph,
        told=lambda _, count: f"Nodes cancelled: {count}. A daemon ends the nodes that it holds.",
        # If the graph has ended, no query of its nodes is needed.
        is_allowed=lambda graph: graph.ended is None and graphs.is_cancellable(graph),
        asks_first=lambda _: True,
    ),
    GraphVerb(
        name="redrive",
        label="Redrive",
        explanation="Send all FAILED nodes of the graph back to the queue, where they wait for "
        "each other as before. FINISHED nodes are not run again.",
        call=graphs.redrive_graph,
        told=lambda _, count: f"Nodes back in the queue: {count}.",
        is_allowed=graphs.is_redrivable,
    ),
)
