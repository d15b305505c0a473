"""Tests of graphs: how they are submitted or refused, their results, and their undo tasks."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from atp import Graph, exceptions, options, queue, result
from atp.exceptions import IllegalTransition, InvalidGraph, InvalidInputs, InvalidOption, NoResult
from atp.graphs import plan, reports
from atp.graphs.models import NodeResult
from atp.graphs.placeholders import comparable_inputs
from atp.models import BLOCKED, Edge, Inputs, Instance, LogRecord, Node, Task, Type, Undo
from atp.models import Graph as GraphRow
from atp.operations.table import GRAPH, OPERATIONS
from atp.states import Event, Reason, State
from atp.store import get_store

from .app.tasks import echo
from .app.tasks_graphs import by_position, fetch, merge, more, named, noop, report, rest, shade
from .app.tasks_saga import book, pay, rent, return_car, unbook

pytestmark = pytest.mark.django_db
TILES = ["shade-1", "shade-2", "shade-3"]
# How many nodes each node of terrain() waits for.
WAITS = {"fetch": 0, **dict.fromkeys(TILES, 1), "merge": 3, "report": 1}


def waits():
    return dict(Task.objects.values_list("instance__node__name", "waits"))


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


def test_submitted_graph_is_stored_with_nodes_edges_and_inputs():
    g = terrain()
    row = GraphRow.objects.get()
    assert (row.uuid, row.name, row.created_by) == (g.uuid, "mosaic", "ann")
    assert edges() == {
        *(("fetch", tile, "finished") for tile in TILES),
        *((tile, "merge", "finished") for tile in TILES),
        ("merge", "report", "ended"),
    }
    assert waits() == WAITS
    assert set(Instance.objects.values_list("created_by", flat=True)) == {"ann"}
    # The inputs refer to results by the names of nodes.
    inputs = {row.instance.node.name: row.value for row in Inputs.objects.all()}
    shade = {"path": result("fetch")["tiles"][1]}
    assert comparable_inputs(inputs["shade-2"]) == comparable_inputs(shade)
    assert list(inputs["merge"]) == ["parts"]
    parts = [result(tile) for tile in TILES]
    assert comparable_inputs(list(inputs["merge"]["parts"])) == comparable_inputs(parts)


def test_nodes_of_a_graph_take_the_usual_options():
    """``after`` accepts a node, its name, a map, a slice of it, and a list of these."""
    with Graph() as g:
        tiles = g.map(noop, [{} for _ in range(4)], names="abcd")
        g.add(noop, name="half", after=tiles[:2])
        g.add(noop, name="rest", after=[tiles[2], "d"])
    assert edges() == {
        *(("a", "half", "finished"), ("b", "half", "finished")),
        *(("c", "rest", "finished"), ("d", "rest", "finished")),
    }
    assert len(tiles) == 4
    with Graph() as g:
        first = g.add(noop.using(priority=7, collection="esa", identifier="one"))
        g.add(noop.using(run_after=timedelta(hours=1)), after=first, name="later")
    instance = g.instance("noop")
    assert (instance.priority, instance.collection, instance.identifier) == (7, "esa", "one")
    later = Node.objects.get(name="later")
    assert later.not_before > instance.created
    assert Task.objects.get(pk=later.pk).due_at == BLOCKED
    with Graph() as g:
        tiles = g.map(shade, [])
        g.add(merge, result(tiles), after=tiles)
    task = Task.objects.get(pk=g.instance("merge").pk)
    assert (task.waits, task.due_at == BLOCKED) == (0, False)  # nothing to wait for


def test_chain_is_stored_as_a_graph():
    """The first node gets the arguments of ``enqueue``."""
    graph = fetch.then(shade, path=result("fetch")["scene"]).then(noop).enqueue(url="u")
    assert edges() == {("fetch", "shade", "finished"), ("shade", "noop", "finished")}
    assert Inputs.objects.get(pk=graph.instance("fetch").pk).value == {"url": "u"}
    noop.then(noop, number=2).then(noop).enqueue(number=1)
    assert edges() >= {("noop", "noop-2", "finished"), ("noop-2", "noop-3", "finished")}
    with pytest.raises(InvalidInputs, match="wrong"):
        noop.then(noop).enqueue(1, wrong=2)
    for type, args, kwargs in (
        (rest, (1,), {"x": 2}),
        (more, (1, 2), {"flag": True}),
        (by_position, (1,), {"b": 2}),
        (named, (), {"name": "a", "after": 2}),
    ):
        alone = type.enqueue(*args, **kwargs)
        type.then(noop).enqueue(*args, **kwargs)
        first = Instance.objects.filter(type__identifier=type.identifier).latest("pk")
        assert first.pk != alone.pk
        assert Inputs.objects.get(pk=first.pk).value == Inputs.objects.get(pk=alone.pk).value


class TestRefused:
    """G13: an invalid graph is refused before anything is written. The error names a parameter."""

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

    def test_cycle_is_refused_and_its_nodes_are_named(self):
        for pairs, words in (("ac ba cb", "'.' → '.' → '.' → '.'"), ("aa", "'a' → 'a'")):
            self.refused(
                lambda g, pairs=pairs: [g.add(noop, name=a, after=b) for a, b in pairs.split()],
                f"cycle: {words}",
                "after",
            )

    def test_invalid_nodes_are_refused_with_a_reason(self):
        """The error suggests a known name if a name might be misspelt."""
        other = Graph().add(noop)
        node = noop.using(identifier="a", existing="return")
        fetched = "result of 'fetch', but does not wait for it"
        hinted = r"There is no node 'nop'\. Did you mean 'noop'"
        refused = self.refused
        refused(
            lambda g: (g.add(noop, name="a"), g.add(noop, name="a")), "Two nodes .* 'a'", "name"
        )
        refused(lambda g: g.add(shade, path=result(g.add(fetch, url="u"))), fetched, "after")
        refused(lambda g: (g.add(noop), g.add(noop, name="last", after="nop")), hinted)
        refused(lambda g: g.add(shade, path=result("nobody")), r"there is no such node\.$", "after")
        refused(lambda g: g.add(noop, after="xyz"), r"There is no node 'xyz'\.$", "after")
        refused(lambda g: g.add(noop, after=[3]), "3 is neither a node", "after")
        refused(lambda g: g.add(noop, after=other), "another graph", "after")
        refused(lambda g: g.add(noop, before=g.add(noop)), "is not the name of a node")
        refused(lambda g: g.add(noop, on_failure="jump"), "stop, run", "on_failure")
        refused(lambda g: g.add(named, name="a"), "inputs=", "name")
        refused(lambda g: g.add(noop, inputs={}, number=1), "either inputs=", "inputs")
        refused(lambda g: g.map(noop, [{}], names="ab"), "2 names for 1 row", "names")
        refused(lambda g: g.add(noop, numbr=1), "numbr", error=InvalidInputs)
        refused(lambda g: g.add(node), "always new")
        refused(lambda g: g.add(noop, name="a\nb"), "name", error=InvalidOption)
        with pytest.raises(InvalidGraph, match=r"there is no such node\. Did you mean 'echo'"):
            echo.then(echo, value=result("ecko")).enqueue()
        with pytest.raises(exceptions.NotSerializable, match="nodes of the same graph"):
            shade.enqueue(path=result("fetch"))
        for nothing in (None, 5, ("a", "b")):
            with pytest.raises(InvalidGraph, match="is neither a node of a graph nor a name"):
                result(nothing)

    def test_invalid_undo_is_refused(self):
        for undo, words in (
            (7, "must be a Type"),
            ((unbook, {"what": 1}, 3), "must be a Type"),
            (unbook.using(identifier="one"), "identifier"),
            (unbook.using(run_after="2100-01-01T00:00:00Z"), "run_after"),
            (unbook.using(unique="x"), "unique"),
            ((unbook, {"what": result("later")}), "does not wait for it"),
            ((unbook, {"what": result("nobody")}), "there is no such node"),
        ):
            self.refused(
                lambda g, undo=undo: g.add(
                    noop, name="later", after=g.add(book, what="flight", undo=undo)
                ),
                words,
            )
        with pytest.raises(InvalidInputs, match=r"trip\.unbook"), Graph() as g:
            g.add(shade, path="p", undo=unbook)

    def test_graph_with_too_many_nodes_or_edges_is_refused(self, monkeypatch):
        monkeypatch.setattr(plan, "MOST_EDGES", 2)
        for write in (
            lambda g: g.add(noop, name="last", after=g.map(noop, [{}] * 3)),
            lambda g: g.map(noop, [{}] * 3, after=g.add(noop, name="one")),
        ):
            self.refused(write, "Put a layer of nodes between", "after")
        monkeypatch.setattr(plan, "MOST_NODES", 2)
        self.refused(lambda g: g.map(noop, [{}] * 3), "3 nodes; at most 2")
        undone = [{"what": "a"}] * 2
        self.refused(lambda g: g.map(book, undone, undo=unbook), "counts as two")


def test_graph_can_be_submitted_only_once():
    with Graph() as g:
        g.add(noop)
    with pytest.raises(InvalidGraph, match="written already"):
        g.add(noop)
    with pytest.raises(InvalidGraph, match="written already"):
        g.submit()
    new = Graph()
    for ask in (new.wait, lambda: new.state, lambda: new.counts, new.results):
        with pytest.raises(InvalidGraph, match="not written yet"):
            ask()


@pytest.mark.slow
def test_graph_with_many_nodes_takes_few_queries(django_assert_max_num_queries):
    """A cancel and a redrive process the nodes in several chunks.

    On PostgreSQL no query is slow although the planner's statistics are from an empty queue.
    """

    def write(count):
        with Graph() as g:
            scene = g.add(fetch, url="u")
            tiles = g.map(noop, [{} for _ in range(count)], after=scene)
            g.add(merge, result(tiles), after=tiles)
        return g

    with transaction.atomic():
        write(1100)
        transaction.set_rollback(True)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL statement_timeout = '60s'")
    write(1)
    most = 50 if connection.vendor == "sqlite" else 30
    with django_assert_max_num_queries(most):
        g = write(1100)
    with django_assert_max_num_queries(240):
        assert (g.cancel(), g.redrive()) == (1102, 1102)


def test_waiting_node_can_get_a_priority_but_cannot_be_run_or_deleted_alone():
    """Nodes of a graph are deleted only together with the graph."""
    with Graph() as g:
        g.add(noop, name="last", after=g.add(noop, name="first"))
    first, last = g.instance("first"), g.instance("last")
    for due in ({"due": timedelta(0)}, {"postpone": timedelta(hours=1)}):
        with pytest.raises(IllegalTransition, match="waits for another node"):
            queue.change(last, **due)
    queue.change(last, priority=9)
    task = Task.objects.get(pk=last.pk)
    assert (task.priority, task.due_at, task.waits) == (9, BLOCKED, 1)
    queue.cancel(first)
    for given in ({}, {"cancel": True}):
        with pytest.raises(IllegalTransition, match="removed as a whole"):
            queue.delete(first, last, **given)
    with pytest.raises(ProtectedError):
        Instance.objects.get(pk=first.pk).delete()
    assert Instance.objects.count() == 2


class TestWhole:
    """Operations on a graph as a whole."""

    def test_graph_is_cancelled_and_redriven(self):
        """G6: the log of each node names the actor."""
        g = terrain()
        assert queue.get_graph(g.uuid).name == "mosaic"
        assert queue.cancel_graph(str(g.uuid), by="ann") == 6
        assert not Task.objects.exists()
        reasons = Instance.objects.values_list("reason", flat=True)
        assert set(reasons) <= {Reason.CANCELLED, Reason.UPSTREAM}
        assert GraphRow.objects.get().request == "cancel"
        with pytest.raises(IllegalTransition, match="no live node"):
            g.cancel()
        assert g.redrive(by="bob") == 6
        assert waits() == WAITS
        assert GraphRow.objects.get().request == ""
        with pytest.raises(IllegalTransition, match="none of its nodes is FAILED"):
            g.redrive()
        log = LogRecord.objects.filter(kind__in=[Event.FAIL, Event.REDRIVE])
        assert sorted(log.values_list("instance__node__name", "kind", "who")) == sorted(
            (name, *done)
            for name in WAITS
            for done in [(Event.FAIL, "ann"), (Event.REDRIVE, "bob")]
        )

    def test_refused_operation_on_a_graph_writes_nothing(self):
        """G13: the graph has neither live nor FAILED nodes, with and without an earlier cancel."""
        for verb in (queue.get_graph, queue.cancel_graph, queue.redrive_graph):
            for uuid in ("nonsense", "00000000-0000-7000-8000-000000000000", None):
                with pytest.raises(exceptions.UnknownGraph, match=str(uuid)):
                    verb(uuid)
        with Graph("empty") as g:
            pass
        for verb, request in (("cancel", ""), ("redrive", "cancel")):
            GraphRow.objects.update(request=request)
            with pytest.raises(InvalidOption):
                getattr(g, verb)(by=7)
            with pytest.raises(IllegalTransition):
                getattr(g, verb)()
            assert GraphRow.objects.get().request == request

    def test_second_cancel_of_a_graph_is_refused_while_the_first_is_pending(self, world):
        queue.register_all()
        with Graph("one") as g:
            g.add(echo)
        world.host("tests.echo").claim(limit=1)
        assert OPERATIONS[GRAPH]["cancel"].is_allowed(g.row)
        assert g.cancel() == 1
        assert not OPERATIONS[GRAPH]["cancel"].is_allowed(g.row)
        with pytest.raises(IllegalTransition, match="are being cancelled already"):
            g.cancel()


def test_finished_graph_returns_its_results(atp, django_assert_num_queries):
    g = terrain()
    assert (g.state, g.counts, g.results()) == ("waiting", {"ACCEPTED": 6}, {})
    with pytest.raises(NoResult):
        g.result("fetch")
    atp.drain()
    row = queue.get_graph(g.uuid)
    for each in (g, row):
        assert (each.state, each.counts) == ("finished", {"FINISHED": 6})
        assert each.result("merge") == [f"shaded s3://scene/{n} by 1" for n in range(3)]
        assert each.results().keys() == WAITS.keys()
    with django_assert_num_queries(2):
        assert g.state
    for ask in (lambda: g.counts, g.results, lambda: g.result("merge")):
        with django_assert_num_queries(1):
            assert ask()
    with Graph() as g:
        tiles = g.map(shade, [{"path": "a"}, {"path": "b"}])
    with pytest.raises(NoResult):
        g.result(tiles)
    atp.drain()
    assert g.result(tiles) == ["shaded a by 1", "shaded b by 1"]
    assert g.result(tiles[1]) == "shaded b by 1"


def test_results_of_a_failed_graph_contain_the_reasons(atp):
    g = terrain()
    queue.cancel(g.instance("fetch"))
    atp.drain()
    assert (g.state, g.counts) == ("failed", {"FAILED": 5, "FINISHED": 1})
    found = g.results()
    assert found["fetch"] == NodeResult("fetch", "FAILED", "CANCELLED")
    assert found["merge"].reason == "UPSTREAM"
    for node in ("merge", "nobody"):
        with pytest.raises(NoResult):
            g.result(node)


def trip():
    with Graph("trip", by="ann") as g:
        flight = g.add(book, what="flight", name="flight", undo=unbook.using(priority=7))
        car = g.add(rent, days=3, after=flight, undo=(return_car, {"car": result("rent")["car"]}))
        g.add(pay, amount=900, after=car)
    return g


def ended(state, *names):
    """Set the nodes with the given names to a terminal state, and delete their Tasks."""
    nodes = Instance.objects.filter(node__name__in=names)
    keys = list(nodes.values_list("pk", flat=True))
    reason = "" if state == State.FINISHED else Reason.FATAL
    nodes.update(state=state, reason=reason, finished=timezone.now(), attempt=1)
    Task.objects.filter(pk__in=keys).delete()


def failed():
    g = trip()
    ended(State.FINISHED, "flight", "rent")
    ended(State.FAILED, "pay")
    return g


def test_undo_of_a_node_is_stored_with_the_node():
    trip()
    found = {undo.node.name: undo for undo in Undo.objects.all()}
    assert found["flight"].type.identifier == "trip.unbook"
    assert (found["flight"].priority, found["flight"].created_by) == (7, "ann")
    assert found["flight"].data == '{"what":"flight"}'
    assert found["rent"].data == '{"car":{"$result":["rent","car"]}}'
    # The Type of the undo is registered, too.
    assert Type.objects.filter(identifier="trip.return_car").exists()
    with Graph() as g:
        nodes = g.map(book, [{"what": "a"}, {"what": "b"}], undo=unbook.using(timeout=5))
    of_map = Undo.objects.filter(node__name__in=nodes.names)
    assert {undo.data for undo in of_map} == {'{"what":"a"}', '{"what":"b"}'}
    assert [options.read_own_options(undo.own) for undo in of_map] == [{"timeout": 5}] * 2


def test_undo_is_shown_after_the_node_that_it_undoes():
    """The graph is ``undoing``, and then ``undone``, or ``failed`` if an undo fails."""

    def state():
        vertices, _ = reports.drawable(g.row)
        found = {
            reports.state(g.row, reports.counts_of(g.row)),
            reports.state(g.row, reports.counts_in(vertices)),
            reports.documents([g.row])[0]["state"],
        }
        assert len(found) == 1
        return found.pop()

    g = failed()
    get_store().graph_ends.end()
    g.row.refresh_from_db()
    assert state() == "undoing"
    assert not OPERATIONS[GRAPH]["redrive"].is_allowed(g.row)
    nodes = reports.node_documents(list(reports.nodes(g.row)))
    found = {each["name"]: each["undoes"] for each in nodes}
    assert (found["undo-rent"], found["rent"]) == ("rent", "")
    _, links = reports.drawable(g.row)
    names = dict(Instance.objects.values_list("pk", "node__name"))
    pairs = {(names[link.upstream], names[link.downstream]) for link in links}
    assert {("rent", "undo-rent"), ("undo-rent", "undo-flight")} <= pairs
    ended(State.FINISHED, "undo-rent", "undo-flight")
    assert state() == "undone"
    Instance.objects.filter(node__name="undo-flight").update(state="FAILED", reason="FATAL")
    assert state() == "failed"
    assert g.redrive(by="ann") == 1


@pytest.mark.django_db(transaction=True)
def test_wait_for_a_failed_graph_also_waits_for_its_undo():
    """It raises in a transaction and after its timeout."""
    g = failed()
    with transaction.atomic(), pytest.raises(exceptions.WaitInTransaction):
        g.wait()
    with pytest.raises(exceptions.WaitTimeout, match=r"trip.* s\. No daemon is alive\."):
        g.wait(timeout=0.1)
    get_store().graph_ends.end()
    ended(State.FINISHED, "undo-flight", "undo-rent")
    g.wait(timeout=10)
