"""A graph that is to be written, and what can be wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import InvalidGraph

if TYPE_CHECKING:
    from uuid import UUID

    from ..store.values import Registration, Submission

MOST_NODES = 100_000
MOST_EDGES = 10_000
# So many names of a cycle are told.
_SHOWN = 10

FINISHED, ENDED = "finished", "ended"


class PlannedUndo(NamedTuple):
    """What undoes a node that has FINISHED: as of a :class:`PlannedNode`."""

    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()


class PlannedNode(NamedTuple):
    """A node by its name: its Type, and what is to be enqueued.

    ``results`` are the names of the nodes of which its inputs have results. ``undoes`` is the
    key of the node that it undoes.
    """

    name: str
    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()
    undo: PlannedUndo | None = None
    undoes: int | None = None


class PlannedEdge(NamedTuple):
    """``downstream`` waits for ``upstream``, until it has FINISHED, or ENDED in any way."""

    upstream: str
    downstream: str
    on: str = FINISHED


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """All of a graph; it is written as a whole or not at all."""

    uuid: UUID
    name: str = ""
    created_by: str = ""
    nodes: Sequence[PlannedNode] = field(default=())
    edges: Sequence[PlannedEdge] = field(default=())

    def checked(self) -> GraphPlan:
        """Return it if it can be written. Raises InvalidGraph."""
        if (count := size_of(self.nodes)) > MOST_NODES:
            raise InvalidGraph(
                f"The graph has {count} nodes, {MOST_NODES} at most can be written. One with an "
                "undo counts as two."
            )
        check_names([node.name for node in self.nodes])
        places = {node.name: place for place, node in enumerate(self.nodes)}
        pairs = [edge[:2] for edge in self.edges]
        _check_edges(pairs, places)
        upstreams: dict[str, list[str]] = defaultdict(list)
        for upstream, downstream in pairs:
            upstreams[downstream].append(upstream)
        if any(places[upstream] >= places[downstream] for upstream, downstream in pairs):
            # Where each comes after what it waits for, there is no circle.
            check_order(upstreams)
        check_results(self.nodes, upstreams)
        return self


def _check_edges(pairs: Sequence[tuple[str, str]], names: Mapping[str, int]) -> None:
    """Raise InvalidGraph for an unknown name, an edge that is there twice, or too many of a node.

    Of tens of thousands of edges: what counts all of them at once is several times as quick.
    """
    uses = [Counter(ends) for ends in zip(*pairs, strict=True)]
    for used in uses:
        if missing := used.keys() - names.keys():
            raise InvalidGraph(f"There is no node {min(missing)!r}.", parameter="after")
    if len(set(pairs)) < len(pairs):
        [((upstream, downstream), _)] = Counter(pairs).most_common(1)
        raise InvalidGraph(f"{downstream!r} waits for {upstream!r} twice.", parameter="after")
    told = "{count} nodes wait for {name!r}", "{name!r} waits for {count} nodes"
    for used, words in zip(uses, told, strict=False):
        name, count = used.most_common(1)[0]
        if count > MOST_EDGES:
            raise InvalidGraph(
                f"{words.format(name=name, count=count)}, {MOST_EDGES} at most can: "
                "put a layer between.",
                parameter="after",
            )


def size_of(nodes: Iterable[PlannedNode]) -> int:
    """Return how many nodes there will be, with those that undo others."""
    return sum(1 if node.undo is None else 2 for node in nodes)


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidGraph if two nodes have the same name."""
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise InvalidGraph(f"Two nodes are called {twice!r}.", parameter="name")


def check_order(upstreams: Mapping[str, Iterable[str]]) -> None:
    """Raise InvalidGraph if nodes wait for each other in a circle."""
    try:
        TopologicalSorter(upstreams).prepare()
    except CycleError as error:
        # Each in it comes before the next.
        cycle = error.args[1]
        told = [repr(name) for name in cycle[:_SHOWN]]
        told += ["…"] * (len(cycle) > _SHOWN)
        raise InvalidGraph(
            f"The nodes wait for each other in a circle: {' → '.join(told)}.", parameter="after"
        ) from None


def check_results(nodes: Iterable[PlannedNode], upstreams: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidGraph if a node is given the result of one that it does not wait for."""
    for name, results in given_results(nodes):
        missing = set(results).difference(upstreams.get(name, ()))
        if missing:
            missing -= all_upstream(name, upstreams)
        if missing:
            raise early_result(name, min(missing))


def given_results(nodes: Iterable[PlannedNode]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the nodes that need results of others, with the names of those; also to be undone.

    What undoes a node has the result of that too.
    """
    for node in nodes:
        if node.results:
            yield node.name, node.results
        if node.undo is not None and node.undo.results:
            yield node.name, tuple(each for each in node.undo.results if each != node.name)


def early_result(name: str, missing: str) -> InvalidGraph:
    """Return the error of a node that is given the result of another but does not wait for it."""
    return InvalidGraph(
        f"{name!r} is given the result of {missing!r}, and does not wait for it: "
        f"say after={missing!r}.",
        parameter="after",
    )


def all_upstream(name: str, upstreams: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of all that a node waits for, itself or through others."""
    found: set[str] = set()
    ahead = list(upstreams.get(name, ()))
    while ahead:
        each = ahead.pop()
        if each not in found:
            found.add(each)
            ahead += upstreams.get(each, ())
    return found
