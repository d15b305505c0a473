"""Writing graphs: what is submitted, and what is refused before anything is written (G13)."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import ProtectedError

from atp import Graph, queue, result
from atp.exceptions import (
    IllegalTransition,
    InvalidGraph,
    InvalidInputs,
    InvalidOption,
    NotSerializable,
    UnknownGraph,
    WaitInTransaction,
    WaitTimeout,
)
from atp.graphs import plan
from atp.graphs.results import comparable
from atp.models import Edge, Inputs, Instance, LogRecord, Node, Task
from atp.models import Graph as GraphRow
from atp.rows.task import BLOCKED
from atp.states import Event, Reason
from atp.store.common.graphs import whole
from atp.verbs.table import GRAPH, VERBS

from .app.tasks import echo
from .app.tasks_graphs import by_position, fetch, merge, more, named, noop, report, rest, shade

pytestmark = pytest.mark.django_db


def edges():
    found = Edge.objects.values_list("upstream__name", "downstream__name", "on")
    return set(found)


def terrain(**more):
    with Graph("mosaic", by="ann") as g:
        scene = g.add(fetch, url="s3://scene", **more)
        rows = ({"path": result(scene)["tiles"][n]} for n in range(3))
        tiles = g.map(shade, rows, after=scene)
        merged = g.add(merge, result(tiles), after=tiles)
        g.add(report, of="merge", after=merged, on_failure="run")
    return g


def test_a_graph_is_written_as_a_whole():
    g = terrain()
    row = GraphRow.objects.get()
    assert (row.uuid, row.name, row.created_by) == (g.uuid, "mosaic", "ann")
    names = list(Node.objects.order_by("pk").values_list("name", flat=True))
    assert sorted(names) == ["fetch", "merge", "report", "shade-1", "shade-2", "shade-3"]
    tiles = [f"shade-{n}" for n in (1, 2, 3)]
    assert edges() == {
        *(("fetch", tile, "finished") for tile in tiles),
        *((tile, "merge", "finished") for tile in tiles),
        ("merge", "report", "ended"),
    }
    waits = dict(Task.objects.values_list("instance__node__name", "waits"))
    assert waits == {"fetch": 0, **dict.fromkeys(tiles, 1), "merge": 3, "report": 1}
    assert set(Instance.objects.values_list("created_by", flat=True)) == {"ann"}


def test_results_stand_in_the_inputs_by_name():
    terrain()
    inputs = {row.instance.node.name: row.value for row in Inputs.objects.all()}
    shade = {"path": result("fetch")["tiles"][1]}
    assert comparable(inputs["shade-2"]) == comparable(shade)
    assert list(inputs["merge"]) == ["parts"]
    parts = [result(f"shade-{n}") for n in (1, 2, 3)]
    assert comparable(list(inputs["merge"]["parts"])) == comparable(parts)


def test_nothing_is_written_if_the_block_raises():
    with pytest.raises(InvalidInputs), Graph() as g:
        g.map(noop, [{}, {"numbr": 1}])
    assert not Instance.objects.exists()


def test_options_are_as_ever():
    with Graph() as g:
        first = g.add(noop.using(priority=7, collection="esa", identifier="one"))
        g.add(noop.using(run_after=timedelta(hours=1)), after=first, name="later")
    instance = g.instance("noop")
    assert (instance.priority, instance.collection, instance.identifier) == (7, "esa", "one")
    later = Node.objects.get(name="later")
    assert later.not_before > instance.created
    assert Task.objects.get(pk=later.pk).due_at == BLOCKED


def test_an_empty_map_blocks_nobody():
    with Graph() as g:
        tiles = g.map(shade, [])
        g.add(merge, result(tiles), after=tiles)
    task = Task.objects.get(pk=g.instance("merge").pk)
    assert task.waits == 0
    assert task.due_at != BLOCKED


def test_names_of_parameters_can_be_given_as_inputs():
    with Graph() as g:
        g.add(named, inputs={"name": "a", "after": 2})
    assert Inputs.objects.get().value == {"name": "a", "after": 2}


def test_a_chain():
    graph = fetch.then(shade, path=result("fetch")["scene"]).then(noop).enqueue(url="u")
    assert edges() == {("fetch", "shade", "finished"), ("shade", "noop", "finished")}
    assert Inputs.objects.get(pk=graph.instance("fetch").pk).value == {"url": "u"}


@pytest.mark.parametrize(
    ("type", "args", "kwargs"),
    [
        (rest, (1,), {"x": 2}),
        (more, (1, 2), {"flag": True}),
        (by_position, (1,), {"b": 2}),
        (named, (), {"name": "a", "after": 2}),
    ],
)
def test_the_first_of_a_chain_is_given_what_an_enqueue_is_given(type, args, kwargs):
    alone = type.enqueue(*args, **kwargs)
    type.then(noop).enqueue(*args, **kwargs)
    first = Instance.objects.filter(type__identifier=type.identifier).latest("pk")
    assert first.pk != alone.pk
    assert Inputs.objects.get(pk=first.pk).value == Inputs.objects.get(pk=alone.pk).value


def test_arguments_that_the_first_of_a_chain_does_not_take():
    with pytest.raises(InvalidInputs, match="wrong"):
        noop.then(noop).enqueue(1, wrong=2)
    assert not Instance.objects.exists()


def test_a_chain_of_the_same_type():
    noop.then(noop, number=2).then(noop).enqueue(number=1)
    assert edges() == {("noop", "noop-2", "finished"), ("noop-2", "noop-3", "finished")}


def test_what_was_slices_and_lists_of_nodes():
    with Graph() as g:
        tiles = g.map(noop, [{} for _ in range(4)], names="abcd")
        g.add(noop, name="half", after=tiles[:2])
        g.add(noop, name="rest", after=[tiles[2], "d"])
    assert edges() == {
        *(("a", "half", "finished"), ("b", "half", "finished")),
        *(("c", "rest", "finished"), ("d", "rest", "finished")),
    }
    assert len(tiles) == 4


class TestRefused:
    """G13: each with its parameter, before anything is written."""

    @pytest.fixture(autouse=True)
    def nothing_is_written(self):
        yield
        assert not GraphRow.objects.exists()
        assert not Instance.objects.exists()

    def refused(self, write, words, parameter=None, error=InvalidGraph):
        with pytest.raises(error, match=words) as told, Graph() as g:
            write(g)
        if parameter:
            assert told.value.parameter == parameter

    def test_an_unknown_name(self):
        self.refused(lambda g: g.add(noop, after="nobody"), "no node 'nobody'", "after")

    def test_a_doubled_name(self):
        def write(g):
            g.add(noop, name="a")
            g.add(noop, name="a")

        self.refused(write, "Two nodes are called 'a'", "name")

    def test_a_circle_is_named(self):
        def write(g):
            g.add(noop, name="a", after="c")
            g.add(noop, name="b", after="a")
            g.add(noop, name="c", after="b")

        self.refused(write, "circle: '.' → '.' → '.' → '.'", "after")

    def test_a_node_that_waits_for_itself(self):
        self.refused(lambda g: g.add(noop, name="a", after="a"), "circle: 'a' → 'a'", "after")

    def test_a_result_of_what_is_not_upstream(self):
        def write(g):
            scene = g.add(fetch, url="u")
            g.add(shade, path=result(scene))

        self.refused(write, "result of 'fetch', and does not wait for it", "after")

    def test_a_result_of_nobody(self):
        self.refused(lambda g: g.add(shade, path=result("nobody")), "'nobody'", "after")

    def test_something_that_is_no_node(self):
        self.refused(lambda g: g.add(noop, after=[3]), "3 is no node", "after")

    def test_a_node_of_another_graph(self):
        other = Graph().add(noop)
        self.refused(lambda g: g.add(noop, after=other), "another graph", "after")

    def test_what_to_do_on_failure(self):
        self.refused(lambda g: g.add(noop, on_failure="jump"), "stop, run", "on_failure")

    def test_a_parameter_with_a_name_of_ours(self):
        self.refused(lambda g: g.add(named, name="a"), "inputs=", "name")

    def test_inputs_and_arguments(self):
        self.refused(lambda g: g.add(noop, inputs={}, number=1), "either inputs=", "inputs")

    def test_too_many_names(self):
        self.refused(lambda g: g.map(noop, [{}], names="ab"), "2 names for 1 row", "names")

    def test_inputs_that_do_not_fit(self):
        self.refused(lambda g: g.add(noop, numbr=1), "numbr", error=InvalidInputs)

    def test_what_exists(self):
        node = noop.using(identifier="a", existing="return")
        self.refused(lambda g: g.add(node), "always new")

    def test_a_name_that_is_none(self):
        self.refused(lambda g: g.add(noop, name="a\nb"), "name", error=InvalidOption)

    def test_too_many_nodes(self, monkeypatch):
        monkeypatch.setattr(plan, "MOST_NODES", 2)
        self.refused(lambda g: g.map(noop, [{}] * 3), "3 nodes, 2 at most")

    @pytest.mark.parametrize("is_in", [True, False])
    def test_too_many_edges_of_a_node(self, monkeypatch, is_in):
        monkeypatch.setattr(plan, "MOST_EDGES", 2)

        def write(g):
            one = g.add(noop, name="one")
            others = g.map(noop, [{}] * 3, after=() if is_in else one)
            if is_in:
                g.add(noop, name="last", after=others)

        self.refused(write, "put a layer between", "after")

    def test_a_result_outside_a_graph(self):
        with pytest.raises(NotSerializable, match="nodes of its graph"):
            shade.enqueue(path=result("fetch"))


def test_a_graph_is_written_once():
    with Graph() as g:
        g.add(noop)
    with pytest.raises(InvalidGraph, match="written already"):
        g.add(noop)
    with pytest.raises(InvalidGraph, match="written already"):
        g.submit()


def test_what_is_not_written_has_no_instances():
    with pytest.raises(InvalidGraph, match="not written yet"):
        Graph().wait()


def test_waiting_in_a_transaction():
    g = terrain()
    with pytest.raises(WaitInTransaction):
        g.wait()


@pytest.mark.django_db(transaction=True)
def test_waiting_for_too_long():
    with pytest.raises(WaitTimeout, match=r"mosaic.* s\. No daemon is alive\."):
        terrain().wait(timeout=0.05)


def test_many_nodes_take_few_queries(django_assert_max_num_queries):
    def write(count):
        with Graph() as g:
            scene = g.add(fetch, url="u")
            tiles = g.map(noop, [{} for _ in range(count)], after=scene)
            g.add(merge, result(tiles), after=tiles)

    write(1)
    most = 40 if connection.vendor == "sqlite" else 25
    with django_assert_max_num_queries(most):
        write(900)


class TestVerbs:
    """What operators do with single nodes."""

    @pytest.fixture
    def nodes(self):
        with Graph() as g:
            g.add(noop, name="last", after=g.add(noop, name="first"))
        return g.instance("first"), g.instance("last")

    def test_a_node_that_waits_cannot_be_run_now(self, nodes):
        _, last = nodes
        for due in ({"due": timedelta(0)}, {"postpone": timedelta(hours=1)}):
            with pytest.raises(IllegalTransition, match="waits for another node"):
                queue.change(last, **due)
        assert Task.objects.get(pk=last.pk).due_at == BLOCKED

    def test_its_priority_can_be_changed(self, nodes):
        _, last = nodes
        queue.change(last, priority=9)
        task = Task.objects.get(pk=last.pk)
        assert (task.priority, task.due_at, task.waits) == (9, BLOCKED, 1)

    @pytest.mark.parametrize("more", [{}, {"cancel": True}])
    def test_a_node_is_not_removed_alone(self, nodes, more):
        first, last = nodes
        queue.cancel(first)
        with pytest.raises(IllegalTransition, match="removed as a whole"):
            queue.delete(first, last, **more)
        with pytest.raises(ProtectedError):
            Instance.objects.get(pk=first.pk).delete()
        assert Instance.objects.count() == 2

    def test_a_node_behind_one_that_failed_is_redriven_with_it(self, nodes):
        first, last = nodes
        queue.cancel(first)
        with pytest.raises(IllegalTransition, match="so is a node that it waits for"):
            queue.redrive(last)
        queue.redrive(last, first)
        assert Task.objects.get(pk=last.pk).waits == 1


class TestWhole:
    """What is asked of a graph as a whole."""

    def test_it_is_cancelled_and_redriven(self):
        g = terrain()
        assert g.cancel(by="ann") == 6
        assert not Task.objects.exists()
        reasons = Instance.objects.values_list("reason", flat=True)
        assert set(reasons) <= {Reason.CANCELLED, Reason.UPSTREAM}
        assert GraphRow.objects.get().request == "cancel"
        with pytest.raises(IllegalTransition, match="no live node"):
            g.cancel()
        assert g.redrive(by="ann") == 6
        waits = dict(Task.objects.values_list("instance__node__name", "waits"))
        tiles = [f"shade-{n}" for n in (1, 2, 3)]
        assert waits == {"fetch": 0, **dict.fromkeys(tiles, 1), "merge": 3, "report": 1}
        assert GraphRow.objects.get().request == ""
        with pytest.raises(IllegalTransition, match="none of it is FAILED"):
            g.redrive()

    def test_it_is_named_by_its_uuid(self):
        uuid = terrain().row.uuid
        assert queue.get_graph(uuid).name == "mosaic"
        assert queue.cancel_graph(str(uuid), by="ann") == 6
        assert queue.redrive_graph(uuid, by="ann") == 6

    @pytest.mark.parametrize("uuid", ["nonsense", "00000000-0000-7000-8000-000000000000", None])
    @pytest.mark.parametrize(
        "verb", [queue.get_graph, queue.cancel_graph, queue.redrive_graph], ids=lambda v: v.__name__
    )
    def test_there_is_no_such_graph(self, verb, uuid):
        with pytest.raises(UnknownGraph, match=str(uuid)):
            verb(uuid)

    @pytest.mark.parametrize("verb", [queue.cancel_graph, queue.redrive_graph])
    def test_who_does_it_is_text(self, verb):
        g = terrain()
        with pytest.raises(InvalidOption):
            verb(g.row, by=7)
        assert Task.objects.count() == 6

    def test_each_node_is_logged_with_who_did_it(self):
        """G6."""
        g = terrain()
        g.cancel(by="ann")
        g.redrive(by="bob")
        log = LogRecord.objects.filter(kind__in=[Event.FAIL, Event.REDRIVE])
        names = Node.objects.values_list("name", flat=True)
        assert sorted(log.values_list("instance__node__name", "kind", "who")) == sorted(
            (name, *done)
            for name in names
            for done in [(Event.FAIL, "ann"), (Event.REDRIVE, "bob")]
        )

    @pytest.mark.parametrize(("verb", "request_"), [("cancel", ""), ("redrive", "cancel")])
    def test_what_is_refused_writes_nothing(self, verb, request_):
        """G13: a graph that has ended, none of it FAILED; also if it was to be cancelled."""
        with Graph("empty") as g:
            pass
        GraphRow.objects.update(request=request_)
        with pytest.raises(IllegalTransition):
            getattr(g, verb)()
        assert GraphRow.objects.get().request == request_

    def test_what_was_asked_of_all_holders_is_told(self, world):
        queue.register_all()
        with Graph("one") as g:
            g.add(echo)
        host = world.host("tests.echo")
        host.claim(limit=1)
        assert VERBS[GRAPH]["cancel"].is_allowed(g.row)
        assert g.cancel() == 1
        assert not VERBS[GRAPH]["cancel"].is_allowed(g.row)
        with pytest.raises(IllegalTransition, match="have been asked to be already"):
            g.cancel()

    def test_in_portions(self, monkeypatch):
        monkeypatch.setattr(whole, "PORTION", 2)
        g = terrain()
        g.cancel()
        assert g.redrive() == 6
        assert dict(Task.objects.values_list("instance__node__name", "waits"))["merge"] == 3

    def test_many_take_few_queries(self, django_assert_max_num_queries):
        with Graph() as g:
            first = g.add(noop)
            g.add(noop, after=g.map(noop, [{}] * 400, after=first))
        with django_assert_max_num_queries(40):
            assert g.cancel(by="ann") == 402
        assert set(Instance.objects.values_list("state", "reason")) == {("FAILED", "CANCELLED")}
        with django_assert_max_num_queries(40):
            assert g.redrive(by="ann") == 402
        assert set(Instance.objects.values_list("state", "reason")) == {("ACCEPTED", "")}
        waits = Counter(Task.objects.values_list("waits", flat=True))
        assert waits == {0: 1, 1: 400, 400: 1}
