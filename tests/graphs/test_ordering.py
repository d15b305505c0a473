"""The order of the boxes in each layer keeps the number of crossing lines small."""

from itertools import combinations, pairwise

from atp.graphs.drawing import Link, crossings, group_into_boxes, order_boxes

from .samples import mixed, node


def counted(rows, pieces):
    """Count the crossings by comparing each pair of lines."""
    spot = {number: (layer, at) for layer, row in enumerate(rows) for at, number in enumerate(row)}
    lines = [(spot[up][0], spot[up][1], spot[down][1]) for up, down in pieces]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in combinations(lines, 2)
    )


def pieces_of(order):
    return [pair for route in order.routes for pair in pairwise(route)]


def test_ordering_adds_no_crossings_and_removes_avoidable_ones():
    for seed in range(3):
        order = order_boxes(group_into_boxes(*mixed(60, seed)))
        pieces = pieces_of(order)
        assert crossings(order.layers, pieces) == counted(order.layers, pieces)
        before = [sorted(row) for row in order.layers]
        assert crossings(order.layers, pieces) <= crossings(before, pieces)
    # Two chains whose second layer starts in the wrong order.
    nodes = [node(key, f"type-{key}") for key in range(6)]
    links = [Link(0, 3), Link(1, 2), Link(3, 4), Link(2, 5)]
    order = order_boxes(group_into_boxes(nodes, links))
    assert crossings(order.layers, pieces_of(order)) == 0
