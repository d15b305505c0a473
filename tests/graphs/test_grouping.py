"""Grouping nodes into boxes, and the counts in the boxes."""

from collections import Counter

import pytest

from atp.graphs.drawing import ALIKE, MOST_BOXES, MOST_LAYERS, MOST_PIECES, Link, group_into_boxes
from atp.states import State

from .samples import fan, mixed, node


def test_similar_nodes_share_a_box_that_counts_them_by_state():
    """Nodes of other Types or layers are not grouped, but many layers are folded."""
    nodes = [node(key, f"type-{key % 2}") for key in range(60)]
    links = [Link(key, key + 30) for key in range(30)]
    labels = Counter(box.label.split("-")[0] for box in group_into_boxes(nodes, links).boxes)
    assert labels == {"type": 60}  # 15 in each layer of each Type
    nodes = [node(key) for key in range(200)]
    found = group_into_boxes(nodes, [Link(key, key + 1) for key in range(199)])
    assert (found.layers, found.folded) == (200, 4)
    assert {box.label for box in found.boxes} == {"part × 4"}
    few = group_into_boxes(*fan(ALIKE))  # they stand by themselves
    assert (len(few.boxes), len(few.lines)) == (ALIKE + 2, 2 * ALIKE)
    found = group_into_boxes(*fan(ALIKE + 1))
    assert [box.label for box in found.boxes] == ["fetch-0", f"part × {ALIKE + 1}", "merge-22"]
    assert [(line.upstream, line.downstream, line.count) for line in found.lines] == [
        (0, 1, ALIKE + 1),
        (1, 2, ALIKE + 1),
    ]
    nodes, links = fan(1_000)
    for at, state in enumerate([State.FAILED] * 3 + [State.ACCEPTED] * 685, start=1):
        nodes[at] = nodes[at]._replace(state=state, waits=int(state == State.ACCEPTED))
    box = group_into_boxes(nodes, links).boxes[1]
    assert (box.label, box.told) == ("part × 1,000", "312 finished, 3 failed, 685 accepted")
    assert (box.count, box.waiting, box.state, box.is_blocked) == (1_000, 685, State.FAILED, False)


def test_a_node_box_shows_state_and_waiting_count():
    [box] = group_into_boxes([node(1, state=State.FAILED, reason="ERROR", name="merge")], []).boxes
    assert (box.label, box.told) == ("merge", "failed (error)")
    [box] = group_into_boxes([node(1, state=State.ACCEPTED, waits=1200)], []).boxes
    assert (box.told, box.is_blocked) == ("accepted, waits for 1,200", True)


def test_a_grouped_line_ignores_failures_only_if_all_its_edges_do():
    nodes, links = fan(ALIKE + 1)
    always = [Link(up, down, always=up == 0) for up, down, _ in links]
    assert [line.always for line in group_into_boxes(nodes, always).lines] == [True, False]
    # One that is not is enough.
    always[0] = always[0]._replace(always=False)
    assert [line.always for line in group_into_boxes(nodes, always).lines] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "links"),
    [
        mixed(3_000, 2, types=400, edges=4),
        mixed(1_000, 4, types=5, edges=40),
        ([node(key) for key in range(3_000)], [Link(key, key + 1) for key in range(2_999)]),
        ([node(key, f"type-{key}") for key in range(2_000)], []),
        pytest.param(*mixed(10_000, 1), marks=pytest.mark.long),
        pytest.param(*mixed(3_000, 3, types=3_000, edges=1), marks=pytest.mark.long),
    ],
    ids=["types", "dense", "chain", "apart", "mixed", "each"],
)
def test_the_picture_never_exceeds_its_limits(nodes, links):
    """However nodes are grouped, each node is counted once."""
    found = group_into_boxes(nodes, links)
    assert len(found.boxes) <= MOST_BOXES
    assert len({box.layer for box in found.boxes}) <= MOST_LAYERS
    lengths = [
        found.boxes[line.downstream].layer - found.boxes[line.upstream].layer
        for line in found.lines
    ]
    assert min(lengths, default=1) > 0
    assert sum(lengths) <= MOST_PIECES
    counted = sum((box.counts for box in found.boxes), Counter())
    assert counted == Counter(vertex.state for vertex in nodes)
