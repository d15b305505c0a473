"""The nodes that a handler adds to its own graph, and the checks that need no database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..exceptions import InvalidGraph
from .plan import MOST_NODES, PlannedEdge, PlannedNode, check_order, given_results, size_of


@dataclass(frozen=True, kw_only=True)
class GraphAddition:
    """Nodes that an attempt adds to the graph of its Instance, whose own node is called ``name``.

    ``edges`` lead to added nodes, from added or existing ones. ``before`` are pairs: an added node,
    and an existing node that is to wait for it.
    """

    instance: int
    attempt: int
    name: str
    nodes: Sequence[PlannedNode] = field(default=())
    edges: Sequence[PlannedEdge] = field(default=())
    before: Sequence[tuple[str, str]] = field(default=())

    def checked(self) -> GraphAddition:
        """Return the addition if it is consistent in itself. Raises InvalidGraph."""
        if (count := size_of(self.nodes)) > MOST_NODES:
            raise InvalidGraph(f"{count} nodes: a graph has {MOST_NODES} at most.")
        own = {node.name for node in self.nodes}
        for _, name in self.before:
            if name in own:
                raise InvalidGraph(
                    f"before: {name!r} is added itself: give it after=.", parameter="before"
                )
        upstreams: dict[str, list[str]] = defaultdict(list)
        for edge in self.edges:
            upstreams[edge.downstream].append(edge.upstream)
        check_order(upstreams)
        return self

    @property
    def names(self) -> set[str]:
        """The names of all nodes that the addition mentions."""
        found = {node.name for node in self.nodes}
        found.update(edge.upstream for edge in self.edges)
        found.update(name for _, name in self.before)
        found.update(name for _, names in given_results(self.nodes) for name in names)
        return found
