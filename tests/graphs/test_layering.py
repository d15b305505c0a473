"""The layers of a graph are compared with the definition: the longest path to each node."""

from functools import cache
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from atp.graphs.drawing import layers


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
