"""What nodes have done is undone once the graph has failed, in reverse order (G13, G17)."""

from unittest import mock

import pytest
from django.db import OperationalError

from atp.exceptions import GraphClosed
from atp.models import Edge, Graph, Instance, Node, Task, Undo
from atp.states import Event, Reason, State

from ..helpers import at_once
from .ends import finish, running
from .graphs import check, fail, run, submit
from .internals import graph_ends
from .test_graphs_adding import Adder
from .world import DAY, ONE, SECOND, registration


def chain_of_three(world, host, *failing):
    """Run four nodes, each after the one before; the first three have an undo."""
    keys = submit(world, "abcd", [("a", "b"), ("b", "c"), ("c", "d")], undos="abc")
    assert run(host, *failing) == ["a", "b", "c", "d"]
    return keys


def test_they_are_undone_in_reverse_order(world, host):
    """And each is seen behind the node that it undoes, and goes with its graph."""
    keys = chain_of_three(world, host, "d")
    assert world.store.graph_ends.end() == (0, 0)
    check()
    node = Node.objects.get(name="undo-a")
    assert node.undoes == keys["a"]
    assert Edge.objects.filter(upstream=keys["a"], downstream=node.pk).exists()
    assert run(host) == ["undo-c", "undo-b", "undo-a"]
    assert world.store.graph_ends.end() == (1, 0)
    assert not Task.objects.exists()
    assert Undo.objects.exists()
    world.store.types.register([registration(ONE, retention=SECOND)])
    Graph.objects.update(ended=world.store.now() - DAY)
    assert world.store.graph_ends.purge() == 7
    assert not Graph.objects.exists()
    assert not Undo.objects.exists()


def test_a_graph_that_finished_is_not_undone_and_what_is_cancelled_is(world, host):
    chain_of_three(world, host)
    assert world.store.graph_ends.end() == (1, 0)
    assert Graph.objects.get().undone is None
    keys = submit(world, "ab", [("a", "b")], undos="ab")
    finish(host, *host.claim())
    world.store.graphs.cancel(Graph.objects.get(ended=None).pk)
    world.store.graph_ends.end()
    assert run(host) == ["undo-a"]
    assert Instance.objects.get(pk=keys["b"]).reason == Reason.CANCELLED


def test_nothing_is_undone_while_a_node_lives(world, host):
    """A node that runs may yet finish, and is then to be undone first."""
    keys = submit(world, "abc", [("a", "b")], undos="ac")
    cases = {case.instance: case for case in host.claim()}
    finish(host, cases[keys["a"]])
    fail(host, *host.claim())
    world.store.graph_ends.end()
    assert not Node.objects.filter(undoes__isnull=False).exists()
    finish(host, cases[keys["c"]])
    world.store.graph_ends.end()
    assert sorted(run(host)) == ["undo-a", "undo-c"]


def test_one_that_cannot_be_undone_stops_no_other_and_only_that_can_be_redriven(world, host):
    chain_of_three(world, host, "d")
    world.store.graph_ends.end()
    case = running(host)
    with pytest.raises(GraphClosed, match="being undone"):
        Adder(world, case, "undo-c").add(["part"])
    host.move(case, Event.FAIL, reason=Reason.ERROR)
    assert run(host) == ["undo-b", "undo-a"]
    assert Node.objects.get(instance__state=State.FAILED, undoes__isnull=False).name == "undo-c"
    world.store.graph_ends.end()
    graph = Graph.objects.get()
    assert world.store.graphs.redrive(graph.pk) == 1
    assert run(host) == ["undo-c"]
    world.store.graph_ends.end()
    assert world.store.graphs.redrive(graph.pk) == 0
    # Nothing is undone twice.
    assert Node.objects.filter(undoes__isnull=False).count() == 3


def test_a_name_that_is_taken(world, host):
    submit(world, ["a", "undo-a", "b"], [("a", "b"), ("undo-a", "b")], undos="a")
    run(host, "b")
    world.store.graph_ends.end()
    [node] = Node.objects.filter(undoes__isnull=False)
    assert node.name == f"undo-{node.undoes}"


@pytest.mark.django_db(transaction=True)
def test_daemons_that_notice_at_once_undo_once(world, host):
    """G17: whoever comes second finds the graph locked, or its undo begun."""
    chain_of_three(world, host, "d")
    at_once(*[world.store.graph_ends.end] * 4)
    # Whoever has begun it may have found the graph locked just then: it is left to the next call.
    while world.store.graph_ends.undo():
        pass
    assert run(host) == ["undo-c", "undo-b", "undo-a"]


class TestPortions:
    """The nodes that undo others are written in portions, which others may run meanwhile."""

    @pytest.fixture(autouse=True)
    def diamond(self, world, host, monkeypatch):
        """A graph that has failed, of which one node is written that undoes another.

        The order in which they are undone is read in small pieces.
        """
        monkeypatch.setattr(graph_ends, "MOST_UNDONE", 1)
        monkeypatch.setattr(graph_ends, "NODES", 2)
        edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
        submit(world, "abcde", edges, undos="abcd")
        run(host, "e")
        assert world.store.graph_ends.end() == (0, 0)
        assert self.undos() == ["undo-d"]

    def undos(self):
        undone = Node.objects.filter(undoes__isnull=False).order_by("pk")
        return list(undone.values_list("name", flat=True))

    def check_order(self, ran):
        assert (ran[0], set(ran[1:3]), ran[3:]) == ("undo-d", {"undo-b", "undo-c"}, ["undo-a"])

    def test_each_commits_and_the_last_one_ends_it(self, world, host):
        assert Graph.objects.get().undo_pending
        assert world.store.graph_ends.undo(limit=2)
        assert self.undos() == ["undo-d", "undo-b", "undo-c"]
        assert not world.store.graph_ends.undo(limit=2)
        assert not Graph.objects.get().undo_pending
        check()
        self.check_order(run(host))

    def test_those_that_are_written_run_meanwhile(self, world, host):
        ran = run(host, "undo-d")
        # Nothing is live, but the graph has not ended: more is to be undone.
        assert world.store.graph_ends.end() == (0, 0)
        while world.store.graph_ends.undo(limit=1):
            check()
            ran += run(host)
        self.check_order(ran + run(host))
        assert world.store.graph_ends.end() == (1, 0)
        assert Edge.objects.filter(on="ended").count() == 4

    def test_another_daemon_goes_on_where_one_was_cut(self, world, host):
        cut = mock.patch.object(world.store.graphs, "write_edges", side_effect=OperationalError)
        with cut, pytest.raises(OperationalError):
            world.store.graph_ends.undo(limit=2)
        assert self.undos() == ["undo-d"]
        another = type(world.store.graph_ends)(world.store)
        while another.undo(limit=2):
            pass
        assert len(self.undos()) == 4
        assert not world.store.graph_ends.undo()
        check()

    def test_a_cancel_meanwhile_cancels_what_is_yet_to_be_written(self, world, host):
        world.store.graphs.cancel(Graph.objects.get().pk)
        while world.store.graph_ends.undo(limit=1):
            pass
        undos = Instance.objects.filter(node__undoes__isnull=False)
        assert list(undos.values_list("state", "reason")) == [("FAILED", "CANCELLED")] * 4
        assert world.store.graphs.redrive(Graph.objects.get().pk) == 4
        assert len(run(host)) == 4
