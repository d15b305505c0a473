"""Handlers that add nodes to their own graph: ``with context.graph() as g``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..exceptions import InvalidGraph
from ..graphs.addition import GraphAddition
from ..models import Graph, Node
from ..verbs.graphs import NodeResult, node_of, undone_by
from .adding import Adding

if TYPE_CHECKING:
    from .context import Context


class Grower(Protocol):
    """Who writes what an attempt adds. Raises Interrupted if the attempt is over."""

    def extend(self, context: Context, addition: GraphAddition) -> None: ...


class Growth(Adding):
    """Nodes that a handler adds to its graph, at the end of the block, in one transaction.

    A node of a name that exists is found and not added again, so a later attempt adds what
    is missing. Nothing is written if the block raises. ``row`` is the row of the graph.
    """

    def __init__(
        self, context: Context, node: Node, graph: Graph, grower: Grower, taken: set[str]
    ) -> None:
        super().__init__(graph.created_by)
        self.row = graph
        self._context, self._grower, self._taken = context, grower, taken
        # Two handlers of one graph are not to find each other's nodes.
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
        """The store knows which there are."""


class Growing:
    """The graph of a Context. An attempt that adds nothing has nothing made for it."""

    _grower: Grower | None = None
    # The names of the nodes that this attempt has added, or found.
    _taken: set[str] | None = None

    @property
    def undoes(self) -> NodeResult | None:
        """The node that this Instance undoes: its ``name`` and ``output``; None for all others."""
        return undone_by(self.key[0])  # type: ignore[attr-defined]

    def graph(self) -> Growth:
        """Add nodes to the graph of this Instance: they are written at the end of a block.

        ``g.add()`` and ``g.map()`` are as in :class:`Graph`, with ``before=``: the names of nodes
        that wait for this one, and then for the new ones too. A new node that comes ``after``
        nothing is due at once. Of a transactional Type they are written with its end.
        Raises InvalidGraph, GraphClosed, and what ``enqueue()`` does.
        """
        context: Context = self  # type: ignore[assignment]
        node = node_of(context.key[0])
        if node is None or node.graph is None or self._grower is None:
            raise InvalidGraph("This Instance is in no graph: nothing can be added to it.")
        if self._taken is None:
            self._taken = set()
        return Growth(context, node, node.graph, self._grower, self._taken)
