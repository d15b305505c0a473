"""Handlers that add nodes to their own graph: ``with context.graph() as g``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..exceptions import InvalidGraph
from ..graphs.addition import GraphAddition
from ..models import Graph, Node
from ..rows.graph import NodeResult
from ..verbs.graphs import node_of, undone_by
from .adding import Adding

if TYPE_CHECKING:
    from .context import Context


class Grower(Protocol):
    """Writes the nodes that an attempt adds. Raises Interrupted if the attempt is over."""

    def extend(self, context: Context, addition: GraphAddition) -> None: ...


class Growth(Adding):
    """The nodes that a handler adds to its graph: written in one transaction as the block ends.

    A node whose name exists already is not added again, so a later attempt adds only the
    missing ones. Nothing is written if the block raises. ``row`` is the row of the graph.
    """

    def __init__(
        self, context: Context, node: Node, graph: Graph, grower: Grower, taken: set[str]
    ) -> None:
        super().__init__(graph.created_by)
        self.row = graph
        self._context, self._grower, self._taken = context, grower, taken
        # With a prefix, two handlers of one graph never generate the same name.
        self._own, self._prefix = node.name, f"{node.name}/"
        self._is_written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write()

    def _write(self) -> None:
        self._check_open()
        instance, attempt = self._context.key
        addition = GraphAddition(
            instance=instance,
            attempt=attempt,
            name=self._own,
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges),
            before=tuple(self._before),
        ).checked()
        self._is_written = True
        if addition.nodes:
            self._grower.extend(self._context, addition)
            self._taken.update(self._nodes)

    def _check_open(self) -> None:
        if self._is_written:
            raise InvalidGraph("These nodes are written already: begin another block.")

    def _is_own(self, graph: Adding) -> bool:
        return isinstance(graph, Growth) and graph.row.pk == self.row.pk

    def _is_taken(self, name: str) -> bool:
        return name in self._nodes or name in self._taken

    def _check_before(self, names: list[str]) -> None:
        """Accept all names: the store checks that these nodes exist."""


class Growing:
    """The part of Context that adds nodes to its graph; it costs nothing until it is used."""

    _grower: Grower | None = None
    # The names of the nodes that this attempt has added, or found there.
    _taken: set[str] | None = None

    @property
    def undoes(self) -> NodeResult | None:
        """The node that this Instance undoes, with ``name`` and ``output``; else None."""
        return undone_by(self.key[0])  # type: ignore[attr-defined]

    def graph(self) -> Growth:
        """Add nodes to the graph of this Instance; the end of the ``with`` block writes them.

        ``g.add()`` and ``g.map()`` are as in :class:`Graph`, and also take ``before=``: the names
        of nodes that wait for this Instance, and from then on for the new nodes too. A new node
        without ``after`` is due at once. If the Type is transactional, the nodes are written
        together with the end of the attempt.
        Raises InvalidGraph, GraphClosed, and whatever ``enqueue()`` raises.
        """
        context: Context = self  # type: ignore[assignment]
        node = node_of(context.key[0])
        if node is None or node.graph is None or self._grower is None:
            raise InvalidGraph("This Instance is in no graph: nothing can be added to it.")
        if self._taken is None:
            self._taken = set()
        return Growth(context, node, node.graph, self._grower, self._taken)
