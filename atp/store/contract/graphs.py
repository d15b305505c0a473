"""Graphs: writing them, and settling the ends of their nodes (G17)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from ...commands import Cancelled
from ...graphs.plan import GraphAddition, GraphPlan
from ...models import Graph
from ...states import State


class Graphs(ABC):
    @abstractmethod
    def submit(self, plan: GraphPlan) -> Graph:
        """Write a checked graph in one transaction. Raises DuplicateIdentifier."""

    @abstractmethod
    def extend(
        self, addition: GraphAddition, *, who: str = "", ends: bool = False
    ) -> dict[str, int] | None:
        """Write the nodes that an attempt adds to its graph; returns their keys by name.

        A worker calls it, on its own connection. The fence is that of :class:`.steps.Steps`. If a
        name exists, the existing node is returned, with its edges as they are. No lock is waited
        for: if another session has locked a row that it needs, it writes nothing and returns None.
        ``ends`` says that the attempt ends in the same transaction. Raises TaskGone, InvalidGraph,
        GraphClosed or DuplicateIdentifier before anything is written.
        """

    @abstractmethod
    def cancel(self, graph: int, *, who: str = "") -> Cancelled:
        """Fail a graph's waiting nodes, in portions, and ask the holders of the others to cancel.

        ``graph`` is its key. It is several transactions, unless the caller has one open.
        """

    @abstractmethod
    def redrive(self, graph: int, *, who: str = "") -> int:
        """Redrive all nodes that FAILED, in portions; returns how many.

        Upstream nodes come first, and the others wait for them as before. Nodes that FINISHED are
        not run again.
        """

    @abstractmethod
    def lock(self, instances: Collection[int], *, waits: bool = True) -> set[int]:
        """Lock those of these Instances that are nodes; nobody can then add Edges behind them.

        Returns their keys. With ``waits=False``, nodes that another session has locked are left
        out. Call it in the transaction in which the nodes end.
        """

    @abstractmethod
    def settle(self, ended: Mapping[int, State], *, who: str = "") -> None:
        """Settle the ends of nodes: free or fail the nodes that waited for them.

        Call it once for each end, in the transaction that has locked the nodes and recorded their
        ends. A limited number of dependants is failed at once, the others later.
        """

    @abstractmethod
    def fail_dependants(self, *, who: str = "", limit: int = 500) -> int:
        """Fail dependants of FAILED nodes that were left for later; returns how many."""

    @abstractmethod
    def end(self, *, limit: int = 100, after: int = 0, who: str = "") -> tuple[int, int]:
        """Mark graphs without live nodes as ended; returns how many, and a key to go on from.

        If a node has FAILED, the undo of the others begins first, once, and :meth:`undo` goes on
        with it. Looks at up to ``limit`` graphs with keys above ``after``. The second value is the
        last key looked at, or 0 if there are no more graphs.
        """

    @abstractmethod
    def undo(self, *, limit: int = 500, who: str = "") -> bool:
        """Write up to ``limit`` nodes that undo others, for a graph whose undo has begun.

        Graphs take turns. Returns whether more can be written at once.
        """

    @abstractmethod
    def are_live(self) -> bool:
        """Return whether a graph is live, or a FAILED node still has dependants to fail."""

    @abstractmethod
    def purge(self, *, limit: int = 500) -> int:
        """Remove ended graphs that no Type keeps any longer, each as a whole.

        Removes up to ``limit`` Instances; returns how many.
        """
