"""The order in which nodes are undone: held against all ways through random graphs."""

import random

from atp.graphs import plan
from atp.graphs.plan import undo_order

SEEDS = range(40)


def before(pairs):
    """Return all pairs that follow from these."""
    found = set(pairs)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


def wanted(undone, edges):
    return {(b, a) for a, b in before(edges) if a in undone and b in undone}


def drawn(seed):
    source = random.Random(seed)
    nodes = range(source.randint(1, 12))
    edges = [(a, b) for b in nodes for a in range(b) if source.random() < 0.25]
    return {node for node in nodes if source.random() < 0.6}, edges


def test_each_comes_after_all_that_were_behind_it():
    for seed in SEEDS:
        undone, edges = drawn(seed)
        assert before(undo_order(undone, edges)) == wanted(undone, edges), seed
    assert undo_order((), [(1, 2)]) == undo_order({1}, [(1, 2)]) == []


def test_where_it_is_too_much_they_make_a_chain(monkeypatch):
    monkeypatch.setattr(plan, "MOST_EDGES", 0)
    for seed in SEEDS:
        undone, edges = drawn(seed)
        pairs = undo_order(undone, edges)
        if wanted(undone, edges):
            assert len(pairs) == len(undone) - 1
        assert before(pairs) >= wanted(undone, edges), seed


def test_many_before_and_behind_one_that_is_not_undone():
    """Each of 1,000 after each of 1,000 would be a million edges."""
    first, last = range(1000), range(2000, 3000)
    edges = [*((a, 1500) for a in first), *((1500, b) for b in last)]
    pairs = undo_order({*first, *last}, edges)
    assert len(pairs) == 1999
    places = {key: place for place, (key, _) in enumerate(pairs)}
    assert max(places[b] for b in last) < min(places[a] for a in first if a in places)
