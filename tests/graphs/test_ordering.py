"""The order in layers: few lines cross."""

from itertools import combinations, pairwise

import pytest

from atp.graphs.grouping import grouped
from atp.graphs.ordering import crossings, ordered
from atp.graphs.vertex import Link

from .samples import mixed, node


def counted(rows, pieces):
    """Crossings, by looking at each pair."""
    spot = {number: (layer, at) for layer, row in enumerate(rows) for at, number in enumerate(row)}
    lines = [(spot[up][0], spot[up][1], spot[down][1]) for up, down in pieces]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in combinations(lines, 2)
    )


def pieces_of(order):
    return [pair for route in order.routes for pair in pairwise(route)]


@pytest.mark.parametrize("seed", range(8))
def test_crossings_are_counted(seed):
    order = ordered(grouped(*mixed(60, seed)))
    assert crossings(order.layers, pieces_of(order)) == counted(order.layers, pieces_of(order))


def test_what_need_not_cross_does_not():
    """Two chains, of which the second layer came in the wrong order."""
    nodes = [node(key, f"type-{key}") for key in range(6)]
    links = [Link(0, 3), Link(1, 2), Link(3, 4), Link(2, 5)]
    order = ordered(grouped(nodes, links))
    assert crossings(order.layers, pieces_of(order)) == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_not_worse_than_that_of_submission(seed):
    found = grouped(*mixed(60, seed))
    order = ordered(found)
    before = [sorted(row) for row in order.layers]
    pieces = pieces_of(order)
    assert crossings(order.layers, pieces) <= crossings(before, pieces)


def test_each_layer_keeps_its_boxes():
    found = grouped(*mixed(60, 1))
    order = ordered(found)
    for layer, row in enumerate(order.layers):
        boxes = {number for number in row if number < len(found.boxes)}
        assert boxes == {n for n, box in enumerate(found.boxes) if box.layer == layer}
    for line, route in zip(found.lines, order.routes, strict=True):
        assert (route[0], route[-1]) == (line.upstream, line.downstream)
        first, last = found.boxes[line.upstream].layer, found.boxes[line.downstream].layer
        assert len(route) == last - first + 1
