"""The plan of a graph to be written, and its checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import InvalidGraph
from ..words.hints import did_you_mean

if TYPE_CHECKING:
    from uuid import UUID

    from ..store.values import Registration, Submission

MOST_NODES = 100_000
MOST_EDGES = 10_000
# The maximum number of names of a cycle in a message.
_SHOWN = 10

FINISHED, ENDED = "finished", "ended"


class PlannedUndo(NamedTuple):
    """The node that would undo a FINISHED node; its fields are as in :class:`PlannedNode`."""

    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()


class PlannedNode(NamedTuple):
    """A node to be written: its name, its Type and its Submission.

    ``results`` are the names of the nodes whose results its inputs contain. ``undoes`` is the
    key of the node that it undoes.
    """

    name: str
    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()
    undo: PlannedUndo | None = None
    undoes: int | None = None


class PlannedEdge(NamedTuple):
    """An edge: ``downstream`` waits until ``upstream`` has FINISHED, or ENDED in any way."""

    upstream: str
    downstream: str
    on: str = FINISHED


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """The plan of a whole graph, which is written completely or not at all."""

    uuid: UUID
    name: str = ""
    created_by: str = ""
    nodes: Sequence[PlannedNode] = field(default=())
    edges: Sequence[PlannedEdge] = field(default=())

    def checked(self) -> GraphPlan:
        """Return the plan if it can be written. Raises InvalidGraph."""
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
            # If each node comes after those that it waits for, there is no cycle.
            check_order(upstreams)
        check_results(self.nodes, upstreams)
        return self


def _check_edges(pairs: Sequence[tuple[str, str]], names: Mapping[str, int]) -> None:
    """Raise InvalidGraph for an unknown name, a duplicate edge, or too many edges of one node.

    It counts all edges at once, which is several times as fast for tens of thousands of edges.
    """
    uses = [Counter(ends) for ends in zip(*pairs, strict=True)]
    for used in uses:
        if unknown := used.keys() - names.keys():
            missing = min(unknown)
            asking = {each for pair in pairs if missing in pair for each in pair}
            hint = did_you_mean(missing, names.keys() - asking)
            raise InvalidGraph(f"There is no node {missing!r}.{hint}", parameter="after")
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
    """Return the number of nodes, including those that may have to undo others."""
    return sum(1 if node.undo is None else 2 for node in nodes)


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidGraph if two nodes have the same name."""
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise InvalidGraph(f"Two nodes are called {twice!r}.", parameter="name")


def check_order(upstreams: Mapping[str, Iterable[str]]) -> None:
    """Raise InvalidGraph if nodes wait for each other in a cycle."""
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
    """Raise InvalidGraph if a node is given the result of a node that it does not wait for."""
    nodes = list(nodes)
    for name, results in given_results(nodes):
        missing = set(results).difference(upstreams.get(name, ()))
        if missing:
            missing -= all_upstream(name, upstreams)
        if missing:
            raise early_result(name, min(missing), [node.name for node in nodes])


def given_results(nodes: Iterable[PlannedNode]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each node that needs results of others, with their names; also for its undo.

    An undo gets the result of its own node too; that name is left out.
    """
    for node in nodes:
        if node.results:
            yield node.name, node.results
        if node.undo is not None and node.undo.results:
            yield node.name, tuple(each for each in node.undo.results if each != node.name)


def early_result(name: str, missing: str, names: Collection[str]) -> InvalidGraph:
    """Return the error for a node that is given the result of a node that it does not wait for.

    ``names`` are those of all nodes.
    """
    if missing not in names:
        return InvalidGraph(
            f"{name!r} is given the result of {missing!r}: there is no such node."
            f"{did_you_mean(missing, [each for each in names if each != name])}",
            parameter="after",
        )
    return InvalidGraph(
        f"{name!r} is given the result of {missing!r}, and does not wait for it: "
        f"say after={missing!r}.",
        parameter="after",
    )


def all_upstream(name: str, upstreams: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of all nodes that a node waits for, directly or through others."""
    found: set[str] = set()
    ahead = list(upstreams.get(name, ()))
    while ahead:
        each = ahead.pop()
        if each not in found:
            found.add(each)
            ahead += upstreams.get(each, ())
    return found
