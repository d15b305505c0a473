"""The order of boxes within their layers, chosen so that few lines cross.

Each box moves to the mean position of its neighbours in the adjacent layer (barycentre method,
Sugiyama 1981): from the first layer to the last and back, twice. A line that spans several layers
has a point in each of them, which is ordered like a box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .grouping import Boxes

SWEEPS = 2


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """``layers`` are the numbers of boxes and points in each layer, from top to bottom.

    Points have the numbers after those of the boxes. ``routes`` are the numbers that each line
    passes: a box, points, a box.
    """

    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]


def ordered(found: Boxes) -> Ordered:
    """Return the layers of the picture, in the order with the fewest crossings that was found."""
    rows: list[list[int]] = [[] for _ in range(max((b.layer for b in found.boxes), default=-1) + 1)]
    for number, box in enumerate(found.boxes):
        rows[box.layer].append(number)
    routes = []
    points = len(found.boxes)
    for line in found.lines:
        between = range(found.boxes[line.upstream].layer + 1, found.boxes[line.downstream].layer)
        route = [line.upstream]
        for layer in between:
            rows[layer].append(points)
            route.append(points)
            points += 1
        routes.append((*route, line.downstream))
    pieces = [pair for route in routes for pair in pairwise(route)]
    return Ordered(layers=_swept(rows, pieces), routes=tuple(routes))


def _swept(rows: list[list[int]], pieces: list[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    above, below = defaultdict(list), defaultdict(list)
    for upstream, downstream in pieces:
        below[upstream].append(downstream)
        above[downstream].append(upstream)
    best = tuple(map(tuple, rows))
    fewest = crossings(best, pieces)
    for beside, chosen in ((above, rows[1:]), (below, rows[-2::-1])) * SWEEPS:
        spots = {number: at for row in rows for at, number in enumerate(row)}
        for row in chosen:
            means = {number: _mean(beside[number], spots, spots[number]) for number in row}
            row.sort(key=means.__getitem__)
            spots |= {number: at for at, number in enumerate(row)}
        count = crossings(rows, pieces)
        if count < fewest:
            best, fewest = tuple(map(tuple, rows)), count
    return best


def _mean(neighbours: list[int], spots: dict[int, int], own: float) -> float:
    if not neighbours:
        return own
    return sum(spots[number] for number in neighbours) / len(neighbours)


def crossings(rows: Iterable[Sequence[int]], pieces: Iterable[tuple[int, int]]) -> int:
    """Return the number of pairs of pieces that cross. Pieces that share an end do not cross."""
    spots = {number: (layer, at) for layer, row in enumerate(rows) for at, number in enumerate(row)}
    between = defaultdict(list)
    for upstream, downstream in pieces:
        layer, begin = spots[upstream]
        between[layer].append((begin, spots[downstream][1]))
    count = 0
    for pairs in between.values():
        ends: list[int] = []
        for _, end in sorted(pairs):
            count += len(ends) - bisect_right(ends, end)
            insort(ends, end)
    return count
