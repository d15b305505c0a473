"""The picture in numbers: nothing outside, nothing upon something else."""

import re
from itertools import pairwise

import pytest

from atp.graphs.drawing import LARGE, SMALL, drawn
from atp.graphs.fitting import fitted
from atp.graphs.vertex import Link
from atp.states import State

from .samples import NAMES, fan, mixed, node

SAMPLES = [fan(6), fan(10_000), mixed(50, 1), mixed(50, 2), mixed(2_000, 3, types=40)]


@pytest.mark.parametrize(("nodes", "links"), SAMPLES)
def test_all_of_it_is_in_the_picture(nodes, links):
    found = drawn(nodes, links)
    for each in found.boxes:
        assert 0 <= each.x <= each.x + each.width <= found.width
        assert 0 <= each.y <= each.y + each.height <= found.height
        if each.bars:
            assert each.x + each.width < found.width
            assert each.behind[1] >= 0
    for line in found.lines:
        numbers = [float(text) for text in re.findall(r"-?[\d.]+", line.path)]
        assert min(numbers) >= 0
        assert max(numbers) <= max(found.width, found.height)


@pytest.mark.parametrize(("nodes", "links"), SAMPLES)
def test_boxes_do_not_overlap(nodes, links):
    columns = {}
    for each in drawn(nodes, links).boxes:
        columns.setdefault(each.x, []).append(each.y)
    for column in columns.values():
        assert all(upper + 48 < lower for upper, lower in pairwise(sorted(column)))


@pytest.mark.parametrize(("nodes", "links"), SAMPLES)
def test_lines_lead_from_box_to_box(nodes, links):
    found = drawn(nodes, links)
    at = {id(each.box): each for each in found.boxes}
    for line in found.lines:
        begin, end = at[id(line.upstream)], at[id(line.downstream)]
        assert line.path.startswith(f"M{begin.x + 180:g} {begin.y + 24:g}")
        assert line.path.endswith(f" {end.x:g} {end.y + 24:g}")


@pytest.mark.parametrize("text", [*NAMES, "", "short", "é" * 21])
def test_texts_fit_into_their_boxes(text):
    wide = sum(2 if ord(letter) > 0x2E80 else 1 for letter in fitted(text, LARGE))
    assert wide <= LARGE


def test_names_keep_both_ends():
    assert fitted("hillshade-of-the-whole-fault-0017", 20) == "hillshade-…ault-0017"


def test_a_list_is_cut_after_an_entry():
    nodes, links = fan(10_000)
    for at, state in enumerate([State.FAILED] * 3 + [State.ACCEPTED] * 685, start=1):
        nodes[at] = nodes[at]._replace(state=state)
    box = drawn(nodes, links).boxes[1]
    assert box.told == "9,312 finished, 3 failed, …"
    assert len(box.told) <= SMALL
    assert box.title == "part × 10,000: 9,312 finished, 3 failed, 685 accepted"


def test_bars_are_shares_that_can_be_seen():
    nodes, links = fan(10_000)
    nodes[1] = nodes[1]._replace(state=State.FAILED)
    box = drawn(nodes, links).boxes[1]
    (first, begin, length), (second, next_begin, least) = box.bars
    assert (first, second) == (State.FINISHED, State.FAILED)
    assert begin + length == pytest.approx(next_begin)
    assert 3 <= least < 4
    assert box.x < begin
    assert next_begin + least < box.x + box.width


def test_titles_say_it_all():
    nodes = [node(1, name=NAMES[1]), node(2, "merge", State.ACCEPTED, waits=1, name=NAMES[4])]
    found = drawn(nodes, [Link(1, 2, always=True)])
    assert found.boxes[1].title == f"{NAMES[4]} (merge): accepted, waits for 1"
    assert found.lines[0].title == f"{NAMES[1]} → {NAMES[4]}, however that ends"
    assert found.words == "2 nodes in 2 layers: 1 finished, 1 accepted."


def test_the_same_graph_is_drawn_the_same_way():
    """It refreshes itself: boxes must not jump about."""
    nodes, links = mixed(50, 5)
    later = [each._replace(state=State.FINISHED) for each in nodes]
    assert [(each.x, each.y) for each in drawn(nodes, links).boxes] == [
        (each.x, each.y) for each in drawn(later, links[::-1]).boxes
    ]


def test_nothing_to_draw():
    assert drawn([], []).boxes == ()
