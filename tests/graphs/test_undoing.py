"""The order in which nodes are undone, compared with all paths through random graphs."""

import random

import pytest

from atp.graphs import plan
from atp.graphs.plan import undo_order


def before(pairs):
    """Return all pairs of nodes that these pairs imply."""
    found = set(pairs)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


def test_nodes_are_undone_after_all_their_descendants(monkeypatch):
    """The order becomes a chain when there would be too many edges."""
    assert undo_order((), [(1, 2)]) == undo_order({1}, [(1, 2)]) == []
    for seed in range(40):
        source = random.Random(seed)
        nodes = range(source.randint(1, 12))
        edges = [(a, b) for b in nodes for a in range(b) if source.random() < 0.25]
        undone = {node for node in nodes if source.random() < 0.6}
        expected = {(b, a) for a, b in before(edges) if a in undone and b in undone}
        assert before(undo_order(undone, edges)) == expected, seed
        with monkeypatch.context() as context:
            context.setattr(plan, "MOST_EDGES", 0)
            pairs = undo_order(undone, edges)
        assert not expected or len(pairs) == len(undone) - 1
        assert before(pairs) >= expected, seed


@pytest.mark.slow
def test_undo_order_needs_few_pairs_for_a_node_between_2000_others():
    """An edge from each of 1,000 nodes to each of 1,000 others would be a million edges."""
    first, last = range(1000), range(2000, 3000)
    edges = [*((a, 1500) for a in first), *((1500, b) for b in last)]
    pairs = undo_order({*first, *last}, edges)
    assert len(pairs) == 1999
    places = {key: place for place, (key, _) in enumerate(pairs)}
    assert max(places[b] for b in last) < min(places[a] for a in first if a in places)
