"""The order in which nodes are undone: the reverse of the edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from graphlib import TopologicalSorter
from itertools import pairwise

from .plan import MOST_EDGES

# The maximum number of pairs, unless the graph has more edges than that.
MOST = 200_000


def undo_order(
    undone: Collection[int], edges: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return pairs of nodes; the first of each pair is undone before the second.

    A node is undone after all undone nodes downstream of it, directly or through nodes that are
    not to be undone. ``edges`` are all edges of the graph, as (upstream, downstream). If there
    would be too many pairs, the nodes are undone one after the other instead: the pairs then form
    a single chain.
    """
    behind: dict[int, list[int]] = defaultdict(list)
    for upstream, downstream in edges:
        behind[upstream].append(downstream)
    # The sorter puts a node behind all nodes that come after it in the graph.
    sorter = TopologicalSorter({**dict.fromkeys(undone, ()), **behind})
    ordered = list(sorter.static_order())
    pairs = _nearest(ordered, set(undone), behind, max(MOST, len(edges)))
    if pairs is None or _most(pairs) > MOST_EDGES:
        chosen = set(undone)
        return list(pairwise(key for key in ordered if key in chosen))
    return pairs


def _nearest(
    ordered: Iterable[int], undone: set[int], behind: dict[int, list[int]], most: int
) -> list[tuple[int, int]] | None:
    """Return pairs (later, earlier) with no undone node between; None if there are too many."""
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


def _most(pairs: Collection[tuple[int, int]]) -> int:
    """Return the highest number of pairs in which one node is at the same side."""
    ends = [Counter(end) for end in zip(*pairs, strict=True)]
    return max((count for end in ends for count in end.values()), default=0)
