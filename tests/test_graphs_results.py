"""What Python code learns of a graph: its state, its nodes by state, and their outputs."""

import pytest

from atp import Graph, queue, result
from atp.exceptions import InvalidGraph, NoResult
from atp.reports import graphs as reports
from atp.rows.graph import NodeResult

from .app.tasks_graphs import fetch, merge, noop, report, shade

pytestmark = pytest.mark.django_db


def mosaic():
    with Graph("mosaic") as g:
        scene = g.add(fetch, url="s")
        tiles = g.map(shade, [{"path": result(scene)["tiles"][n]} for n in range(3)], after=scene)
        merged = g.add(merge, result(tiles), after=tiles)
        g.add(report, of="merge", after=merged, on_failure="run")
    return g, tiles


def test_a_graph_that_has_finished_gives_its_results(atp):
    g, tiles = mosaic()
    assert (g.state, g.counts) == ("waiting", {"ACCEPTED": 6})
    atp.drain()
    row = queue.get_graph(g.uuid)
    for each in (g, row):
        assert (each.state, each.counts) == ("finished", {"FINISHED": 6})
        assert each.result("merge") == [f"shaded s/{n} by 1" for n in range(3)]
        assert each.results().keys() == {"fetch", *tiles.names, "merge", "report"}
    assert g.result(tiles) == g.result("merge")
    assert g.result(tiles[1]) == "shaded s/1 by 1"


def test_of_a_failure_the_results_say_the_reason(atp):
    g, tiles = mosaic()
    queue.cancel(g.instance("fetch"))
    atp.drain()
    assert g.state == "failed"
    assert g.counts == {"FAILED": 5, "FINISHED": 1}
    found = g.results()
    assert found["fetch"] == NodeResult("fetch", "FAILED", "CANCELLED")
    assert found["merge"].reason == "UPSTREAM"
    for node in ("merge", tiles, "nobody"):
        with pytest.raises(NoResult):
            g.result(node)


def test_what_has_not_ended_has_no_result():
    g, tiles = mosaic()
    assert g.results() == {}
    for node in ("fetch", tiles):
        with pytest.raises(NoResult):
            g.result(node)


def test_an_undone_graph_is_undone(atp):
    with Graph() as g:
        g.add(noop, name="first", undo=noop)
        g.add(noop, name="last")
    queue.cancel(g.instance("last"))
    atp.drain()
    assert g.state == reports.state(queue.get_graph(g.uuid), reports.counts_of(g.row)) == "undone"


def test_a_graph_that_is_not_written_has_no_state():
    g = Graph()
    for ask in (lambda: g.state, lambda: g.counts, g.results, lambda: g.result("a")):
        with pytest.raises(InvalidGraph):
            ask()


def test_few_queries_however_many_nodes(atp, django_assert_num_queries):
    g, tiles = mosaic()
    atp.drain()
    with django_assert_num_queries(2):
        assert g.state
    for ask in (lambda: g.counts, g.results, lambda: g.result(tiles)):
        with django_assert_num_queries(1):
            assert ask()
