"""Nodes that a handler adds to its own graph: fence, names, before, locks (G4, G9, G13, G17)."""

import pytest
from django.db import transaction

from atp.exceptions import GraphClosed, InvalidGraph, TaskGone
from atp.graphs.plan import GraphAddition, PlannedEdge
from atp.models import Edge, Graph, Instance, Node, Task
from atp.states import Event, Reason, State

from ..helpers import Thread, at_once
from .ends import running
from .graphs import check, planned, submit
from .world import ONE, move_of, needs_row_locks


class Adder:
    """A node that is held, and what it adds."""

    def __init__(self, world, case, name="split"):
        self.world, self.case, self.name = world, case, name

    def add(self, nodes, edges=(), before=(), *, type=ONE, results=(), ends=False):
        """Add nodes; ``edges`` are as in a plan, ``before`` the names of what is to wait."""
        addition = GraphAddition(
            instance=self.case.instance,
            attempt=self.case.number,
            name=self.name,
            nodes=[planned(node, type, results=results) for node in nodes],
            edges=[PlannedEdge(*edge) for edge in edges],
            before=[(node, other) for node in nodes for other in before],
        ).checked()
        return self.world.store.graphs.extend(addition, ends=ends)


@pytest.fixture
def keys(world):
    """Three nodes that wait for each other, and one beside them."""
    edges = [("split", "merge"), ("other", "merge"), ("merge", "report", "ended")]
    return submit(world, ["split", "other", "merge", "report"], edges)


@pytest.fixture
def cases(world, host, keys):
    """What is claimed and runs, by its key."""
    claimed = host.claim()
    assert host.record(*[move_of(case, Event.START) for case in claimed]) == []
    return {case.instance: case for case in claimed}


@pytest.fixture
def adder(world, keys, cases):
    return Adder(world, cases[keys["split"]])


def waits(key):
    return Task.objects.get(pk=key).waits


def test_a_node_of_a_cancelled_graph_that_is_redriven_by_itself_may_add(world, host, keys):
    """Nobody is cancelling any more; while another node is live, somebody is."""
    world.store.graphs.cancel(Graph.objects.get().pk)
    assert world.as_anyone(Event.REDRIVE, keys["split"]) == []
    assert Adder(world, running(host)).add("a")


def test_new_nodes_are_due_and_are_waited_for(world, host, keys, cases, adder):
    """G17: merge starts when the new nodes have finished too; each waits as for the others."""
    added = adder.add(["a", "b"], before=["merge", "report"])
    assert [waits(key) for key in added.values()] == [0, 0]
    assert waits(keys["merge"]) == 4
    found = dict(Edge.objects.filter(upstream=added["a"]).values_list("downstream", "on"))
    assert found == {keys["merge"]: "finished", keys["report"]: "ended"}
    check()
    parts = host.claim()
    assert {case.instance for case in parts} == set(added.values())
    for case in cases.values():
        host.move(case, Event.FINISH)
    assert waits(keys["merge"]) == 2
    for case in parts:
        host.move(case, Event.START, Event.FINISH)
    assert waits(keys["merge"]) == 0
    check()


def test_what_comes_after_one_that_failed_fails(world, host, keys, cases, adder):
    """G17: it is not left waiting; and with on_failure="run" it runs."""
    host.move(cases[keys["other"]], Event.FAIL, reason="ERROR")
    added = adder.add("ab", [("other", "a"), ("other", "b", "ended")])
    failed = Instance.objects.get(pk=added["a"])
    assert (failed.state, failed.reason) == (State.FAILED, Reason.UPSTREAM)
    assert waits(added["b"]) == 0
    check()


def test_a_second_attempt_finds_what_the_first_has_added(world, host, keys, adder):
    """G4, G17: no node twice, no edge twice; and the first one adds nothing more."""
    first = adder.add("ab", [("a", "b")], ["merge"])
    host.move(adder.case, Event.RELEASE)
    again = next(case for case in host.claim() if case.instance == keys["split"])
    assert again.number == 2
    with pytest.raises(TaskGone):
        adder.add("c")
    assert Node.objects.count() == 6
    second = Adder(world, again).add("abc", [("a", "b")], ["merge"])
    assert {name: second[name] for name in first} == first
    assert Node.objects.count() == 7
    assert waits(keys["merge"]) == 5
    check()


def test_what_is_refused_is_named_with_nothing_written(world, host, keys, cases, adder):
    """G13."""
    refused = [
        (("a", [("z", "a")]), {}, "no node 'z'"),
        (("a",), {"before": ["z"]}, "no node 'z'"),
        (("a", [("report", "a")], ["merge"]), {}, "cycle"),
        (("ab", [("a", "b"), ("b", "a")]), {}, "cycle"),
        (("a",), {"results": ("merge",)}, "result of 'merge'"),
        (("a",), {"before": ["other"]}, "'other' does not wait"),
        (("a",), {"before": ["split"]}, "'split' does not wait"),
    ]
    for given, more, told in refused:
        with pytest.raises(InvalidGraph, match=told):
            adder.add(*given, **more)
    with pytest.raises(InvalidGraph, match="in no graph"):
        Adder(world, world.bring_to(State.RUNNING, host)).add("a")
    # An operator has cancelled it.
    assert world.store.control.cancel([keys["merge"]]).failed
    with pytest.raises(GraphClosed, match="'merge' waits no more"):
        adder.add("a", before=["merge"])
    assert Node.objects.count() == len(keys)
    added = adder.add("a", [("report", "a")], results=("other",))
    assert waits(added["a"]) == 1
    with pytest.raises(InvalidGraph, match="'a' already"):
        adder.add("ab", type="tests.two")
    for asked in ("cancel", "remove"):
        Graph.objects.update(request=asked)
        with pytest.raises(GraphClosed, match="is being"):
            adder.add("b")
    Graph.objects.update(request="", ended=world.store.now())
    with pytest.raises(GraphClosed, match="has ended"):
        adder.add("b")
    assert Node.objects.count() == len(keys) + 1
    check()


def test_with_the_end_in_one_transaction(world, keys, adder):
    """G7: as for a transactional Type, it is undone with that."""
    with transaction.atomic():
        adder.add("a", before=["merge"], ends=True)
        world.store.records.conclude(move_of(adder.case, Event.FINISH))
    assert waits(keys["merge"]) == 2
    check()


@pytest.mark.django_db(transaction=True)
class TestTogether:
    def add(self, adder, *upstreams):
        """Add eight nodes before merge, one after the other, each until it is written."""
        for node in (f"a{number}" for number in range(8)):
            while adder.add([node], [(name, node) for name in upstreams], ["merge"]) is None:
                pass

    def test_with_the_end_of_what_it_comes_after(self, world, host, keys, cases, adder):
        """G17: whichever is first, the edge is not lost."""
        at_once(
            lambda: self.add(adder, "other"),
            lambda: host.move(cases[keys["other"]], Event.FINISH),
        )
        assert Node.objects.count() == 12
        assert not Task.objects.filter(waits__gt=0).exclude(pk__in=[keys["merge"], keys["report"]])
        check()

    def test_two_that_add_the_same_names(self, world, host, keys, cases, adder):
        other = Adder(world, cases[keys["other"]], "other")
        at_once(lambda: self.add(adder), lambda: self.add(other))
        assert Node.objects.count() == 12
        assert waits(keys["merge"]) == 10
        check()

    @needs_row_locks
    def test_nobody_is_waited_for(self, keys, adder):
        """G9: not for who holds the graph, a node, or a Task open; and nothing is written."""
        for model in (Graph, Node, Task):
            with transaction.atomic():
                assert list(model.objects.select_for_update())
                adding = Thread(adder.add, "a", [("other", "a")], ["merge"])
                assert adding.result(20) is None, model
            assert Node.objects.count() == 4
        assert adder.add("a", [("other", "a")], ["merge"])
        check()
