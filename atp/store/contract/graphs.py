"""Graphs: writing them, and what is done when their nodes end (G17)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from ...graphs.addition import GraphAddition
from ...graphs.plan import GraphPlan
from ...models import Graph
from ...states import State
from ..values import Cancelled


class Graphs(ABC):
    @abstractmethod
    def submit(self, plan: GraphPlan) -> Graph:
        """Write a graph, which has been checked, in one transaction.

        Raises DuplicateIdentifier.
        """

    @abstractmethod
    def extend(
        self, addition: GraphAddition, *, who: str = "", ends: bool = False
    ) -> dict[str, int] | None:
        """Write what an attempt adds to its graph; returns the keys of its nodes by name.

        A worker calls it, on its own connection. The fence is that of :class:`.steps.Steps`. Of
        a name that exists the node is found, with the edges that it has. It waits for nobody's
        lock: it returns None, and has written nothing, where somebody else has locked what it
        needs. ``ends`` tells that the attempt ends in the same transaction. Raises TaskGone,
        InvalidGraph, GraphClosed or DuplicateIdentifier before anything is written.
        """

    @abstractmethod
    def cancel(self, graph: int, *, who: str = "") -> Cancelled:
        """Fail what waits of a graph, in portions, and ask the holders of the rest to cancel it.

        ``graph`` is its key. It is several transactions, unless the caller has one open.
        """

    @abstractmethod
    def redrive(self, graph: int, *, who: str = "") -> int:
        """Send all nodes that FAILED back to the queue, in portions; returns how many.

        What is upstream comes first, and the others wait for it as before. Nodes that
        FINISHED are not run again.
        """

    @abstractmethod
    def lock(self, instances: Collection[int], *, waits: bool = True) -> set[int]:
        """Lock those of these Instances that are nodes, so that nobody adds Edges behind them.

        Returns their keys. If it does not wait, those that somebody else has locked are left
        out. It is part of the transaction in which they end.
        """

    @abstractmethod
    def settle(self, ended: Mapping[int, State], *, who: str = "") -> None:
        """Let what waited for these nodes wait for them no more; free it, or fail it.

        To be called in the transaction that has locked the nodes and recorded their ends,
        once for each end. So many dependants are failed at once, the others later.
        """

    @abstractmethod
    def fail_dependants(self, *, who: str = "", limit: int = 500) -> int:
        """Fail what waits for nodes that FAILED and was left for later; returns how many."""

    @abstractmethod
    def end(self, *, limit: int = 100, after: int = 0, who: str = "") -> tuple[int, int]:
        """Say of graphs that have no live node since when; returns how many.

        If one of its nodes FAILED, the nodes that undo others are written instead, once.
        It looks at so many, behind the key ``after``. Returns the key of the last too, 0 if
        there are no more.
        """

    @abstractmethod
    def are_live(self) -> bool:
        """Whether there are graphs that have not ended, or of which something is left to fail."""

    @abstractmethod
    def purge(self, *, limit: int = 500) -> int:
        """Remove graphs of which no Type keeps its Instances any longer, each as a whole.

        Up to so many Instances go at once; returns how many.
        """
