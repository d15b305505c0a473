"""Writing graphs: Instances that wait for the ends of others, submitted together."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from uuid import UUID

from ..conf import settings
from ..exceptions import InvalidGraph, NoResult
from ..graphs.plan import GraphPlan
from ..models import Graph as GraphRow
from ..models import Instance
from ..rows.graph import NodeResult
from ..verbs.actor import check_by
from ..verbs.graphs import cancel_graph, redrive_graph, submit_graph
from ..words.options import check_text
from ..words.uuids import uuid7
from .adding import Adding
from .nodes import GraphNodes, NodeLike


class Graph(Adding):
    """A graph that is written at the end of its ``with`` block, in one transaction.

    Nothing is written if the block raises. ``name`` is for people, ``by`` says who enqueues.
    Afterwards ``row`` is the row of the graph.
    """

    def __init__(self, name: str = "", *, by: object = "") -> None:
        super().__init__(str(by))
        self.name = name
        check_text("name", name)
        check_by(self.by)
        self.uuid: UUID = uuid7()
        self.row: GraphRow | None = None

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} {self.uuid}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.submit()

    def submit(self) -> None:
        """Write the graph, as the end of the block does.

        Raises InvalidGraph or DuplicateIdentifier.
        """
        self._check_open()
        plan = GraphPlan(
            uuid=self.uuid,
            name=self.name,
            created_by=self.by,
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges),
        )
        self.row = submit_graph(plan)

    def instance(self, node: NodeLike) -> Instance:
        """Return the Instance of a node, once the graph is written."""
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        name = node if isinstance(node, str) else node.names[0]
        return rows.get(node__graph=self._written(), node__name=name)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all nodes have ended, however they end, and until the undo has ended.

        ``timeout`` is in seconds. Look at ``state`` afterwards: a failure raises nothing here.
        Raises WaitTimeout or WaitInTransaction.
        """
        self._written().wait(timeout)
        return self

    @property
    def state(self) -> str:
        """The state now: waiting, running, finished, failed, undoing or undone. Two queries."""
        return self._written().state

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes in each state that a node has now. One query."""
        return self._written().counts

    def results(self) -> dict[str, NodeResult]:
        """Return the results of all nodes that have ended, by name, in one query."""
        return self._written().results()

    def result(self, node: NodeLike) -> Any:
        """Return the output of a node; of the nodes of a ``map()``, the list of their outputs.

        Raises NoResult if a node has not FINISHED, or if there is no such node.
        """
        if not isinstance(node, GraphNodes):
            return self._written().result(node if isinstance(node, str) else node.name)
        found = self._written().results()
        missing = next((name for name in node.names if name not in found), None)
        if missing is not None:
            raise NoResult(f"There is no result of {missing!r}: it has not ended.")
        return [found[name].value for name in node.names]

    def cancel(self, by: str = "") -> int:
        """Cancel all live nodes and return their number. Raises IllegalTransition if none is."""
        return cancel_graph(self._written(), by)

    def redrive(self, by: str = "") -> int:
        """Redrive all FAILED nodes and return their number. Raises IllegalTransition if none is."""
        return redrive_graph(self._written(), by)

    def _written(self) -> GraphRow:
        if self.row is None:
            raise InvalidGraph("The graph is not written yet: that is at the end of its block.")
        return self.row

    def _check_open(self) -> None:
        if self.row is not None:
            raise InvalidGraph("The graph is written already.")
