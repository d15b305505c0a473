"""The plan of a graph as plain values, before it is written, with its checks and undo order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import InvalidGraph
from ..text import did_you_mean

if TYPE_CHECKING:
    from uuid import UUID

    from ..store.values import Registration, Submission


MOST_NODES = 100_000
# For one node, in each direction.
MOST_EDGES = 10_000
# The maximum number of pairs in the order of an undo, unless the graph has more edges.
MAX_UNDO_PAIRS = 200_000
# A message lists at most this many names of a cycle.
_MAX_LISTED = 10

FINISHED, ENDED = "finished", "ended"


class PlannedUndo(NamedTuple):
    """The plan for a node that would undo another, FINISHED node.

    The fields have the same meaning as those of :class:`PlannedNode`.
    """

    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()


class PlannedNode(NamedTuple):
    """A node to be written, with its name, its Type and its Submission.

    ``results`` are the names of the nodes whose results this node's inputs contain. ``undo`` is the
    plan to undo this node, if any. ``undoes`` is the primary key of the node that this node undoes,
    if any.
    """

    name: str
    registration: Registration
    submission: Submission
    results: tuple[str, ...] = ()
    undo: PlannedUndo | None = None
    undoes: int | None = None


class PlannedEdge(NamedTuple):
    """An edge to be written: ``downstream`` waits for the end of ``upstream``.

    ``on`` is FINISHED, or ENDED for an end of any kind.
    """

    upstream: str
    downstream: str
    on: str = FINISHED


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """The plan of a graph, which is written either completely or not at all."""

    uuid: UUID
    name: str = ""
    created_by: str = ""
    nodes: Sequence[PlannedNode] = field(default=())
    edges: Sequence[PlannedEdge] = field(default=())

    def checked(self) -> GraphPlan:
        """Return this plan if it is valid. Raises InvalidGraph otherwise."""
        if (count := size_of(self.nodes)) > MOST_NODES:
            raise InvalidGraph(
                f"The graph has {count} nodes; at most {MOST_NODES} can be written. A node with an "
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
            # There is no cycle if each node comes after the nodes that it waits for.
            check_order(upstreams)
        check_results(self.nodes, upstreams)
        return self


def _check_edges(pairs: Sequence[tuple[str, str]], names: Mapping[str, int]) -> None:
    """Raise InvalidGraph for an unknown name, a duplicate edge, or a node with too many edges.

    Counting all edges at once is several times faster for tens of thousands of edges.
    """
    uses = [Counter(ends) for ends in zip(*pairs, strict=True)]
    for used in uses:
        if unknown := used.keys() - names.keys():
            missing = min(unknown)
            neighbours = {each for pair in pairs if missing in pair for each in pair}
            hint = did_you_mean(missing, names.keys() - neighbours)
            raise InvalidGraph(f"There is no node {missing!r}.{hint}", parameter="after")
    if len(set(pairs)) < len(pairs):
        [((upstream, downstream), _)] = Counter(pairs).most_common(1)
        raise InvalidGraph(f"{downstream!r} waits for {upstream!r} twice.", parameter="after")
    texts = "{count} nodes wait for {name!r}", "{name!r} waits for {count} nodes"
    for used, words in zip(uses, texts, strict=False):
        name, count = used.most_common(1)[0]
        if count > MOST_EDGES:
            raise InvalidGraph(
                f"{words.format(name=name, count=count)}, but at most {MOST_EDGES} are possible. "
                "Put a layer of nodes between them.",
                parameter="after",
            )


def size_of(nodes: Iterable[PlannedNode]) -> int:
    """Return the number of these nodes, plus one for each node that has an undo."""
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
        # Each node of the cycle comes before the next.
        cycle = error.args[1]
        listed = [repr(name) for name in cycle[:_MAX_LISTED]]
        listed += ["…"] * (len(cycle) > _MAX_LISTED)
        raise InvalidGraph(
            f"The nodes wait for each other in a cycle: {' → '.join(listed)}.", parameter="after"
        ) from None


def check_results(nodes: Iterable[PlannedNode], upstreams: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidGraph if a node needs the result of a node for which it does not wait.

    ``upstreams`` contains the names of the nodes that each node directly waits for.
    """
    nodes = list(nodes)
    for name, results in given_results(nodes):
        missing = set(results).difference(upstreams.get(name, ()))
        if missing:
            missing -= all_upstream(name, upstreams)
        if missing:
            raise early_result(name, min(missing), [node.name for node in nodes])


def given_results(nodes: Iterable[PlannedNode]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each node that needs results, with the names of the nodes that it needs.

    The results that the undo of a node needs are included, except the result of that node itself.
    """
    for node in nodes:
        if node.results:
            yield node.name, node.results
        if node.undo is not None and node.undo.results:
            yield node.name, tuple(each for each in node.undo.results if each != node.name)


def early_result(name: str, missing: str, names: Collection[str]) -> InvalidGraph:
    """Return the error for a node that needs the result of a node for which it does not wait.

    ``name`` is the first node, ``missing`` the second one, and ``names`` are all names in the
    graph.
    """
    if missing not in names:
        return InvalidGraph(
            f"{name!r} needs the result of {missing!r}, but there is no such node."
            f"{did_you_mean(missing, [each for each in names if each != name])}",
            parameter="after",
        )
    return InvalidGraph(
        f"{name!r} needs the result of {missing!r}, but does not wait for it. "
        f"Use after={missing!r}.",
        parameter="after",
    )


def all_upstream(name: str, upstreams: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of all nodes that a node waits for, directly or indirectly."""
    found: set[str] = set()
    ahead = list(upstreams.get(name, ()))
    while ahead:
        each = ahead.pop()
        if each not in found:
            found.add(each)
            ahead += upstreams.get(each, ())
    return found


# The nodes that a handler adds to its own graph, and the checks that need no database.


@dataclass(frozen=True, kw_only=True)
class GraphAddition:
    """The nodes that an attempt adds to the graph of its Instance.

    ``name`` is the name of the attempt's own node. ``edges`` lead from added or existing nodes to
    added nodes. ``before`` contains pairs of an added node and an existing node that must wait for
    the added node.
    """

    instance: int
    attempt: int
    name: str
    nodes: Sequence[PlannedNode] = field(default=())
    edges: Sequence[PlannedEdge] = field(default=())
    before: Sequence[tuple[str, str]] = field(default=())

    def checked(self) -> GraphAddition:
        """Return this addition if it is valid. Raises InvalidGraph otherwise.

        The existing nodes of the graph are not checked here.
        """
        if (count := size_of(self.nodes)) > MOST_NODES:
            raise InvalidGraph(f"{count} nodes: a graph can have at most {MOST_NODES}.")
        own = {node.name for node in self.nodes}
        for _, name in self.before:
            if name in own:
                raise InvalidGraph(
                    f"before: {name!r} is a new node, too. Use after= for it instead.",
                    parameter="before",
                )
        upstreams: dict[str, list[str]] = defaultdict(list)
        for edge in self.edges:
            upstreams[edge.downstream].append(edge.upstream)
        check_order(upstreams)
        return self

    @property
    def names(self) -> set[str]:
        """The names of all nodes that occur in the addition."""
        found = {node.name for node in self.nodes}
        found.update(edge.upstream for edge in self.edges)
        found.update(name for _, name in self.before)
        found.update(name for _, names in given_results(self.nodes) for name in names)
        return found


# The order in which nodes are undone: the reverse of the edges.


def undo_order(
    undone: Collection[int], edges: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the order of an undo as pairs of nodes: the first is undone before the second.

    A node is undone after all ``undone`` nodes downstream of it, even if there are nodes between
    them that are not undone. ``edges`` are all edges of the graph, as (upstream, downstream). If
    this order needs too many pairs, the result is a single chain, in which the nodes are undone one
    after another.
    """
    behind: dict[int, list[int]] = defaultdict(list)
    for upstream, downstream in edges:
        behind[upstream].append(downstream)
    # The sorter puts a node after all nodes that are downstream of it.
    sorter = TopologicalSorter({**dict.fromkeys(undone, ()), **behind})
    ordered = list(sorter.static_order())
    pairs = _pair_nearest(ordered, set(undone), behind, max(MAX_UNDO_PAIRS, len(edges)))
    if pairs is None or _most_at_one_node(pairs) > MOST_EDGES:
        chosen = set(undone)
        return list(pairwise(key for key in ordered if key in chosen))
    return pairs


def _pair_nearest(
    ordered: Iterable[int], undone: set[int], behind: dict[int, list[int]], most: int
) -> list[tuple[int, int]] | None:
    """Return pairs (downstream, upstream) of ``undone`` nodes without an undone node between them.

    Returns None if there are more than ``most`` pairs.
    """
    near: dict[int, set[int]] = {}
    pairs: list[tuple[int, int]] = []
    count = 0
    for key in ordered:
        found: set[int] = set()
        for other in behind.get(key, ()):
            found |= {other} if other in undone else near[other]
        near[key] = found
        count += len(found)
        if count > most:
            return None
        if key in undone:
            pairs += [(other, key) for other in sorted(found)]
    return pairs


def _most_at_one_node(pairs: Collection[tuple[int, int]]) -> int:
    """Return the highest number of pairs with the same first node, or with the same second node."""
    ends = [Counter(end) for end in zip(*pairs, strict=True)]
    return max((count for end in ends for count in end.values()), default=0)
