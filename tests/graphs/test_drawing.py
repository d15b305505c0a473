"""The picture in numbers: nothing outside, nothing upon something else."""

import re
from itertools import pairwise

import pytest

from atp.graphs.drawing import LARGE, SMALL, Link, cut_middle, draw
from atp.states import State

from .samples import NAMES, fan, mixed, node


@pytest.mark.parametrize(("nodes", "links"), [fan(6), mixed(50, 1), mixed(2_000, 3, types=40)])
def test_all_is_in_the_picture_without_overlaps_and_lines_lead_from_box_to_box(nodes, links):
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


def test_texts_fit_into_their_boxes_and_keep_both_ends():
    for text in (*NAMES, "", "short", "é" * 21):
        wide = sum(2 if ord(letter) > 0x2E80 else 1 for letter in cut_middle(text, LARGE))
        assert wide <= LARGE
    assert cut_middle("hillshade-of-the-whole-fault-0017", 20) == "hillshade-…ault-0017"


def test_what_a_large_box_says_and_its_bars():
    """A list is cut after an entry; each share can be seen."""
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


def test_titles_say_it_all():
    nodes = [node(1, name=NAMES[1]), node(2, "merge", State.ACCEPTED, waits=1, name=NAMES[4])]
    found = draw(nodes, [Link(1, 2, always=True)])
    assert found.boxes[1].title == f"{NAMES[4]} (merge): accepted, waits for 1"
    assert found.lines[0].title == f"{NAMES[1]} → {NAMES[4]}, however that ends"
    assert found.words == "2 nodes in 2 layers: 1 finished, 1 accepted."
    assert draw([], []).boxes == ()


def test_the_same_graph_is_drawn_the_same_way():
    """It refreshes itself: boxes must not jump about."""
    nodes, links = mixed(50, 5)
    later = [each._replace(state=State.FINISHED) for each in nodes]
    assert [(each.x, each.y) for each in draw(nodes, links).boxes] == [
        (each.x, each.y) for each in draw(later, links[::-1]).boxes
    ]
