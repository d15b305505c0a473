"""How a graph is laid out, drawn, and written as text.

Boxes do not overlap, all lies inside the picture, and few lines cross.
"""

import re
from collections import Counter
from functools import cache
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atp.graphs import drawing
from atp.graphs.drawing import ALIKE, Link, Vertex, draw, group_into_boxes, layers
from atp.states import State

NAMES = (
    'a "quoted" name',
    "<script>alert('x')</script>",
    "&amp; #35; `x` %%",
    "日本語" * 30,
    "x" * 200,
)


def node(key, type="part", state=State.FINISHED, waits=0, name=None, reason=""):
    return Vertex(key, name or f"{type}-{key}", type, state, reason, waits)


def fan(count):
    """Return a graph of one node, ``count`` parallel nodes, and one node after all of them."""
    last, parts = count + 1, range(1, count + 1)
    nodes = [node(0, "fetch"), *map(node, parts), node(last, "merge", State.ACCEPTED, waits=1)]
    return nodes, [Link(0, key) for key in parts] + [Link(key, last) for key in parts]


def mixed(count, seed, types=6, edges=2):
    """Return random nodes of several Types and states, with edges from earlier nodes."""
    random = Random(seed)
    nodes = [
        node(
            key,
            f"type-{random.randrange(types)}",
            random.choice([*State]),
            name=NAMES[key] if key < len(NAMES) else None,
        )
        for key in range(count)
    ]
    pairs = {
        (random.randrange(key), key, random.random() < 0.2)
        for key in range(count // 4 + 1, count)
        for _ in range(random.randrange(edges + 1))
    }
    return nodes, [Link(*pair) for pair in sorted(pairs)]


@st.composite
def graphs(draw):
    """Generate numbered nodes in any order, and edges that form no cycle."""
    count = draw(st.integers(1, 30))
    order = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    found = {tuple(sorted(pair)) for pair in draw(st.lists(pairs, max_size=60)) if len({*pair}) > 1}
    return draw(st.permutations(range(count))), [(order[a], order[b]) for a, b in found]


@settings(max_examples=30)
@given(graphs())
def test_the_layer_of_a_node_is_the_length_of_the_longest_path_to_it(graph):
    keys, edges = graph

    @cache
    def longest(key):
        return max((longest(up) + 1 for up, down in edges if down == key), default=0)

    assert layers(keys, edges) == {key: longest(key) for key in keys}


def test_layering_accepts_a_long_chain_dangling_edges_and_cycles():
    keys = range(100_000)
    assert layers(keys, pairwise(keys))[99_999] == 99_999
    assert layers([], []) == {}
    assert layers([1, 2], [(0, 1), (1, 2), (2, 3)]) == {1: 0, 2: 1}
    assert layers([1, 2, 3, 4], [(1, 2), (2, 3), (3, 2), (3, 4)]) == {1: 0, 2: 0, 3: 0, 4: 0}


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
    ends = [(line.upstream, line.downstream, line.count) for line in found.lines]
    assert ends == [(0, 1, ALIKE + 1), (1, 2, ALIKE + 1)]


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
    assert len(found.boxes) <= drawing.MOST_BOXES
    assert len({box.layer for box in found.boxes}) <= drawing.MOST_LAYERS
    lengths = [
        found.boxes[line.downstream].layer - found.boxes[line.upstream].layer
        for line in found.lines
    ]
    assert min(lengths, default=1) > 0
    assert sum(lengths) <= drawing.MOST_PIECES
    counted = sum((box.counts for box in found.boxes), Counter())
    assert counted == Counter(vertex.state for vertex in nodes)


def counted(rows, pieces):
    """Count the drawing.crossings by comparing each pair of lines."""
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
        order = drawing.order_boxes(group_into_boxes(*mixed(60, seed)))
        pieces = pieces_of(order)
        assert drawing.crossings(order.layers, pieces) == counted(order.layers, pieces)
        before = [sorted(row) for row in order.layers]
        assert drawing.crossings(order.layers, pieces) <= drawing.crossings(before, pieces)
    # Two chains whose second layer starts in the wrong order.
    nodes = [node(key, f"type-{key}") for key in range(6)]
    links = [Link(0, 3), Link(1, 2), Link(3, 4), Link(2, 5)]
    order = drawing.order_boxes(group_into_boxes(nodes, links))
    assert drawing.crossings(order.layers, pieces_of(order)) == 0


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
        wide = sum(
            2 if ord(letter) > 0x2E80 else 1 for letter in drawing.cut_middle(text, drawing.LARGE)
        )
        assert wide <= drawing.LARGE
    assert drawing.cut_middle("hillshade-of-the-whole-fault-0017", 20) == "hillshade-…ault-0017"


def test_a_group_box_shows_its_counts_and_a_bar_for_each_state():
    """A list of counts is cut after an entry; the bar of each state is wide enough to see."""
    nodes, links = fan(10_000)
    for at, state in enumerate([State.FAILED] * 3 + [State.ACCEPTED] * 685, start=1):
        nodes[at] = nodes[at]._replace(state=state, waits=int(state == State.ACCEPTED))
    box = draw(nodes, links).boxes[1]
    of_all = box.box
    assert (of_all.count, of_all.waiting, of_all.state) == (10_000, 685, State.FAILED)
    assert not of_all.is_blocked
    assert box.told == "9,312 finished, 3 failed, …"
    assert len(box.told) <= drawing.SMALL
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
    later = [each._replace(state=State.FINISHED) for each in nodes]
    first, second = (draw(*each).boxes for each in ((nodes, links), (later, links[::-1])))
    assert [(box.x, box.y) for box in first] == [(box.x, box.y) for box in second]


NODE = re.compile(r'  n\d+\["[^"<>`&#;%:]*(?:#\d+;[^"<>`&#;%:]*)*<br/>[\w ,.×…#;()]+"\]:::[a-z]+')
LINE = re.compile(r"  n\d+ (?:-->|-\.->)(?:\|\d+\|)? n\d+")
CLASS = re.compile(r"  classDef [a-z]+ stroke:#[0-9a-f]{6},stroke-width:2px")


def test_mermaid_text_is_valid_and_distinguishes_edges_that_ignore_failures():
    nodes, links = fan(30)
    text = drawing.mermaid(nodes, [Link(up, down, down == 31) for up, down, _ in links])
    for told in ("part × 30", "  n0 -->|30| n1", "  n1 -.->|30| n2"):
        assert told in text
    for each in (text, drawing.mermaid(*mixed(50, 1))):
        first, *lines = each.splitlines()
        assert first == "flowchart LR"
        for line in lines:
            assert any(kind.fullmatch(line) for kind in (NODE, LINE, CLASS)), line


def test_mermaid_syntax_in_labels_is_escaped():
    for text, told in (
        ('say "x"', "say #34;x#34;"),
        ("<b>&#35;", "#60;b#62;#38;#35;35#59;"),
        ("a`b`]--> n1", "a#96;b#96;#93;--#62; n1"),
        ("two\nlines\tand more", "two lines and more"),
        ("日本 é", "日本 é"),
    ):
        assert drawing.escape_label(text) == told


def test_the_outline_puts_a_join_below_its_last_branch():
    nodes = [node(key, f"type-{key}", name=name) for key, name in enumerate("abcde")]
    links = [Link(0, 1), Link(0, 2), Link(1, 3), Link(2, 3), Link(3, 4), Link(0, 4)]
    entries = drawing.outline(nodes, links)
    assert [(entry.depth, entry.box.label, entry.after) for entry in entries] == [
        (0, "a", ()),
        (1, "b", ("a",)),
        (1, "c", ("a",)),
        (2, "d", ("b", "c")),
        (3, "e", ("a", "d")),
    ]
