"""The geometry of a drawn graph: boxes do not overlap, and all lies inside the picture."""

import re
from itertools import pairwise

import pytest

from atp.graphs.drawing import LARGE, SMALL, Link, cut_middle, draw
from atp.states import State

from .samples import NAMES, fan, mixed, node


@pytest.mark.parametrize(("nodes", "links"), [fan(6), mixed(50, 1), mixed(2_000, 3, types=40)])
def test_boxes_do_not_overlap_or_leave_the_picture_and_lines_connect_them(nodes, links):
    found, columns = draw(nodes, links), {}
    for each in found.boxes:
        assert 0 <= each.x <= each.x + each.width <= found.width
        assert 0 <= each.y <= each.y + each.height <= found.height
        if each.bars:
            assert each.x + each.width < found.width
            assert each.behind[1] >= 0
        columns.setdefault(each.x, []).append(each.y)
    for column in columns.values():
        assert all(upper + 48 < lower for upper, lower in pairwise(sorted(column)))
    at = {id(each.box): each for each in found.boxes}
    for line in found.lines:
        numbers = [float(text) for text in re.findall(r"-?[\d.]+", line.path)]
        assert min(numbers) >= 0
        assert max(numbers) <= max(found.width, found.height)
        begin, end = at[id(line.upstream)], at[id(line.downstream)]
        assert line.path.startswith(f"M{begin.x + 180:g} {begin.y + 24:g}")
        assert line.path.endswith(f" {end.x:g} {end.y + 24:g}")


def test_long_labels_are_cut_in_the_middle():
    for text in (*NAMES, "", "short", "é" * 21):
        wide = sum(2 if ord(letter) > 0x2E80 else 1 for letter in cut_middle(text, LARGE))
        assert wide <= LARGE
    assert cut_middle("hillshade-of-the-whole-fault-0017", 20) == "hillshade-…ault-0017"


def test_a_group_box_shows_its_counts_and_a_bar_for_each_state():
    """A list of counts is cut after an entry; the bar of each state is wide enough to see."""
    nodes, links = fan(10_000)
    for at, state in enumerate([State.FAILED] * 3 + [State.ACCEPTED] * 685, start=1):
        nodes[at] = nodes[at]._replace(state=state)
    box = draw(nodes, links).boxes[1]
    assert box.told == "9,312 finished, 3 failed, …"
    assert len(box.told) <= SMALL
    assert box.title == "part × 10,000: 9,312 finished, 3 failed, 685 accepted"
    assert {state for state, *_ in box.bars} == {State.FINISHED, State.FAILED, State.ACCEPTED}
    for (_, begin, length), (_, next_begin, _) in pairwise(box.bars):
        assert begin + length == pytest.approx(next_begin)
    assert 3 <= min(length for *_, length in box.bars) < 4
    assert box.x < box.bars[0][1]
    assert sum(box.bars[-1][1:]) < box.x + box.width


def test_titles_show_the_full_names():
    nodes = [node(1, name=NAMES[1]), node(2, "merge", State.ACCEPTED, waits=1, name=NAMES[4])]
    found = draw(nodes, [Link(1, 2, always=True)])
    assert found.boxes[1].title == f"{NAMES[4]} (merge): accepted, waits for 1"
    assert found.lines[0].title == f"{NAMES[1]} → {NAMES[4]}, however that ends"
    assert found.words == "2 nodes in 2 layers: 1 finished, 1 accepted."
    assert draw([], []).boxes == ()


def test_a_graph_is_always_drawn_the_same_way():
    """The page refreshes itself, and the boxes must not move."""
    nodes, links = mixed(50, 5)
    later = draw([each._replace(state=State.FINISHED) for each in nodes], links[::-1])
    assert [(box.x, box.y) for box in draw(nodes, links).boxes] == [
        (box.x, box.y) for box in later.boxes
    ]
