"""The order in which nodes are undone: that of the edges, reversed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from graphlib import TopologicalSorter
from itertools import pairwise

from .plan import MOST_EDGES

# More edges than these are not written for it, unless there were as many before.
MOST = 200_000


def undo_order(
    undone: Collection[int], edges: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return pairs of nodes that are undone: the first of each is undone before the second.

    A node is undone after all that came after it, itself or through nodes that are not undone.
    ``edges`` are all of the graph, upstream first. Where it would be too many pairs, they make
    one chain of all, in an order that fits.
    """
    behind: dict[int, list[int]] = defaultdict(list)
    for upstream, downstream in edges:
        behind[upstream].append(downstream)
    # Of each node, what comes after it comes first.
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
    """Return each node with the nearest that are undone behind it; None if they are too many."""
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
    """Return how many of these pairs one node is in, at the same side."""
    ends = [Counter(end) for end in zip(*pairs, strict=True)]
    return max((count for end in ends for count in end.values()), default=0)
