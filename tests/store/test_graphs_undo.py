"""What nodes have done is undone once the graph has failed, in reverse order (G13, G17)."""

from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.db.models import Count

from atp.exceptions import GraphClosed, TypeInUse
from atp.models import Edge, Graph, Instance, Node, Task, Undo
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store.common.graphs import removing, undoing
from atp.store.values import Move

from ..helpers import at_once
from .graphs import check, submit
from .test_graphs_adding import Adder
from .world import ONE, TWO, registration

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(world):
    return world.host()


def finish(host, case):
    now = host.world.store.now()
    host.move(case, Event.FINISH, started=now, time=now)


def fail(host, case):
    now = host.world.store.now()
    host.move(case, Event.FAIL, started=now, time=now, reason=Reason.FATAL)


def run_until(host, *failing):
    """Let all run until nothing is due; what is called as one of these FAILS."""
    ran = []
    while cases := host.claim():
        names = dict(Node.objects.values_list("pk", "name"))
        for case in cases:
            ran.append(names[case.instance])
            (fail if ran[-1] in failing else finish)(host, case)
    return ran


def chain_of_three(world, **more):
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    return submit(world, "abcd", edges, undos="abc", **more)


def test_they_are_undone_in_reverse_order(world, host):
    chain_of_three(world)
    assert run_until(host, "d") == ["a", "b", "c", "d"]
    assert world.store.graphs.end() == (0, 0)
    check()
    assert run_until(host) == ["undo-c", "undo-b", "undo-a"]
    assert world.store.graphs.end() == (1, 0)
    assert not Task.objects.exists()


@pytest.mark.parametrize("after", range(4))
def test_undo_that_begins_while_a_client_waits_is_waited_for(world, host, after):
    """Whatever query of the client it comes behind. The nodes of the undo are not written yet."""
    chain_of_three(world)
    run_until(host, "d")
    graph = Graph.objects.get()
    queries = []

    def begin(execute, *args):
        if len(queries) == after:
            queries.append("the undo begins")
            Graph.objects.update(undone=world.store.now(), undo_pending=True)
        queries.append(args[0])
        return execute(*args)

    with connection.execute_wrapper(begin):
        assert graph._is_to_be_undone()


def test_what_has_not_finished_is_not_undone(world, host):
    chain_of_three(world)
    run_until(host, "b")
    world.store.graphs.end()
    assert run_until(host) == ["undo-a"]


def test_a_graph_that_finished_is_not_undone(world, host):
    chain_of_three(world)
    run_until(host)
    assert world.store.graphs.end() == (1, 0)
    assert Graph.objects.get().undone is None


def test_nothing_is_undone_while_a_node_lives(world, host):
    """A node that runs may yet finish, and is then to be undone first."""
    keys = submit(world, "abc", [("a", "b")], undos="ac")
    cases = {case.instance: case for case in host.claim()}
    finish(host, cases[keys["a"]])
    [case] = host.claim()
    fail(host, case)
    world.store.graphs.end()
    assert not Node.objects.filter(undoes__isnull=False).exists()
    finish(host, cases[keys["c"]])
    world.store.graphs.end()
    assert sorted(run_until(host)) == ["undo-a", "undo-c"]


def test_what_is_cancelled_is_undone(world, host):
    keys = chain_of_three(world)
    [case] = host.claim()
    finish(host, case)
    world.store.graphs.cancel(Graph.objects.get().pk)
    world.store.graphs.end()
    assert run_until(host) == ["undo-a"]
    assert Instance.objects.get(pk=keys["b"]).reason == Reason.CANCELLED


def test_one_that_cannot_be_undone_stops_no_other(world, host):
    chain_of_three(world)
    run_until(host, "d")
    world.store.graphs.end()
    assert run_until(host, "undo-c") == ["undo-c", "undo-b", "undo-a"]
    failed = Node.objects.filter(instance__state=State.FAILED, undoes__isnull=False)
    assert [node.name for node in failed] == ["undo-c"]


def test_only_the_undo_can_be_redriven_then(world, host):
    chain_of_three(world)
    run_until(host, "d")
    world.store.graphs.end()
    run_until(host, "undo-b")
    world.store.graphs.end()
    graph = Graph.objects.get()
    assert world.store.graphs.redrive(graph.pk) == 1
    assert run_until(host) == ["undo-b"]
    world.store.graphs.end()
    assert world.store.graphs.redrive(graph.pk) == 0
    # Nothing is undone twice.
    assert Node.objects.filter(undoes__isnull=False).count() == 3


def test_a_node_that_was_undone_is_not_redriven(world, host):
    keys = chain_of_three(world)
    run_until(host, "d")
    world.store.graphs.end()
    move = Move(event=Event.REDRIVE, instance=keys["d"])
    assert world.store.record([move]) == [move]


def test_it_is_seen_behind_the_node_that_it_undoes(world, host):
    keys = chain_of_three(world)
    run_until(host, "b")
    world.store.graphs.end()
    node = Node.objects.get(name="undo-a")
    assert node.undoes == keys["a"]
    assert Edge.objects.filter(upstream=keys["a"], downstream=node.pk).exists()


def test_a_name_that_is_taken(world, host):
    submit(world, ["a", "undo-a", "b"], [("a", "b"), ("undo-a", "b")], undos="a")
    run_until(host, "b")
    world.store.graphs.end()
    [node] = Node.objects.filter(undoes__isnull=False)
    assert node.name == f"undo-{node.undoes}"


def test_nothing_is_added_to_what_is_undone(world, host):
    chain_of_three(world)
    run_until(host, "d")
    world.store.graphs.end()
    [case] = host.claim()
    host.move(case, Event.START)
    with pytest.raises(GraphClosed, match="being undone"):
        Adder(world, case, "undo-c").add(["part"])


def test_its_type_is_in_use(world):
    submit(world, "a", [], types={"a": TWO}, undos="a")
    with pytest.raises(TypeInUse, match="undone by it"):
        world.store.unregister(ONE)


def test_it_goes_with_the_graph(world, host):
    submit(world, "ab", [("a", "b")], undos="a")
    run_until(host, "b")
    world.store.graphs.end()
    run_until(host)
    world.store.graphs.end()
    assert Undo.objects.exists()
    world.store.register([registration(ONE, retention=timedelta(seconds=1))])
    long_ago = world.store.now() - timedelta(days=1)
    Graph.objects.update(ended=long_ago)
    assert world.store.graphs.purge() == 3
    assert not Graph.objects.exists()
    assert not Undo.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_daemons_that_notice_at_once_undo_once(world, host):
    """G17: whoever comes second finds the graph locked, or its undo begun."""
    chain_of_three(world)
    run_until(host, "d")
    at_once(*[world.store.graphs.end] * 4)
    world.store.graphs.end()
    assert run_until(host) == ["undo-c", "undo-b", "undo-a"]


def test_each_is_logged_as_any_other(world, host):
    """G6."""
    chain_of_three(world)
    run_until(host, "d")
    world.store.graphs.end()
    run_until(host)
    key = Node.objects.get(name="undo-a").pk
    kinds = [record.kind for record in world.log(key)]
    assert kinds == ["enqueue", Kind.FREED, "claim", "start", "finish"]


class Cut:
    """Edges whose statement takes too long."""

    @staticmethod
    def filter(**conditions):
        raise OperationalError("cut")


class TestPortions:
    """The nodes that undo others are written in portions, which others may run meanwhile."""

    @pytest.fixture
    def portion(self, monkeypatch):
        """Let the end of the graph write one undo node, and read the order in small pieces."""
        monkeypatch.setattr(removing, "MOST", 1)
        monkeypatch.setattr(undoing, "NODES", 2)

    def diamond(self, world, **more):
        edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
        return submit(world, "abcde", edges, undos="abcd", **more)

    def undos(self):
        undone = Node.objects.filter(undoes__isnull=False).order_by("pk")
        return list(undone.values_list("name", flat=True))

    def test_each_commits_and_the_last_one_ends_it(self, world, host, portion):
        self.diamond(world)
        run_until(host, "e")
        assert world.store.graphs.end() == (0, 0)
        assert self.undos() == ["undo-d"]
        assert Graph.objects.get().undo_pending
        assert world.store.graphs.undo(limit=2)
        assert self.undos() == ["undo-d", "undo-b", "undo-c"]
        assert not world.store.graphs.undo(limit=2)
        assert not Graph.objects.get().undo_pending
        check()
        ran = run_until(host)
        assert (ran[0], set(ran[1:3]), ran[3]) == ("undo-d", {"undo-b", "undo-c"}, "undo-a")

    def test_those_that_are_written_run_meanwhile(self, world, host, portion):
        self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()
        ran = run_until(host, "undo-d")
        # Nothing is live, but the graph has not ended: more is to be undone.
        assert world.store.graphs.end() == (0, 0)
        while world.store.graphs.undo(limit=1):
            check()
            ran += run_until(host)
        ran += run_until(host)
        assert (ran[0], set(ran[1:3]), ran[3]) == ("undo-d", {"undo-b", "undo-c"}, "undo-a")
        assert world.store.graphs.end() == (1, 0)
        assert Edge.objects.filter(on="ended").count() == 4

    def test_another_daemon_goes_on_where_one_was_cut(self, world, host, portion):
        self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()

        def cut(*args):
            raise OperationalError("cut")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store.graphs, "_write_edges", cut)
            with pytest.raises(OperationalError):
                world.store.graphs.undo(limit=2)
        assert self.undos() == ["undo-d"]
        another = type(world.store.graphs)(world.store)
        while another.undo(limit=2):
            pass
        assert len(self.undos()) == 4
        assert not world.store.graphs.undo()
        check()

    def test_what_is_cut_while_it_reads_is_read_in_smaller_pieces(self, world):
        self.diamond(world)
        order = undoing.UndoOrder(Graph.objects.get().pk)
        pieces = []
        for _ in range(2):
            with pytest.raises(OperationalError):
                order.read(lambda model: Cut if model is Edge else model.objects)
            pieces.append(order._piece)
        assert pieces == [undoing.NODES // 2, undoing.NODES // 4]
        assert order.read(lambda model: model.objects)

    def test_graphs_take_turns(self, world, host, portion):
        for _ in range(2):
            self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()
        for _ in range(2):
            assert world.store.graphs.undo(limit=1)
        undos = Node.objects.filter(undoes__isnull=False)
        assert sorted(undos.values_list("graph").annotate(n=Count("pk")).values_list("n")) == [
            (2,),
            (2,),
        ]

    def test_a_cancel_meanwhile_cancels_what_is_yet_to_be_written(self, world, host, portion):
        self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()
        world.store.graphs.cancel(Graph.objects.get().pk)
        while world.store.graphs.undo(limit=1):
            pass
        undos = Instance.objects.filter(node__undoes__isnull=False)
        assert set(undos.values_list("state", "reason")) == {("FAILED", "CANCELLED")}
        assert undos.count() == 4
        assert world.store.graphs.redrive(Graph.objects.get().pk) == 4
        assert len(run_until(host)) == 4

    def test_inputs_that_are_too_long_together_are_written_apart(
        self, world, host, portion, monkeypatch
    ):
        monkeypatch.setattr(undoing, "LENGTH", 3)
        self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()
        assert world.store.graphs.undo()
        assert len(self.undos()) == 2

    def test_a_graph_that_a_daemon_has_ended_too_early_goes_on(self, world, host, portion):
        """As one of an earlier release does, which does not know of portions."""
        self.diamond(world)
        run_until(host, "e")
        world.store.graphs.end()
        run_until(host)
        Graph.objects.update(ended=world.store.now())
        assert world.store.graphs.undo(limit=1)
        assert Graph.objects.get().ended is None
