"""Undoing nodes of graphs: what is written for it, what is refused, what is shown (G13)."""

import pytest
from django.utils import timezone

from atp import Graph, queue, result
from atp.exceptions import IllegalTransition, InvalidGraph, InvalidInputs, WaitTimeout
from atp.graphs import plan
from atp.models import Graph as GraphRow
from atp.models import Instance, Task, Type, Undo
from atp.payload import own
from atp.reports import graphs as reports
from atp.states import Reason, State
from atp.store import get_store
from atp.verbs.table import GRAPH, VERBS

from .app.tasks import echo
from .app.tasks_graphs import noop, shade
from .app.tasks_saga import book, pay, rent, return_car, unbook

pytestmark = pytest.mark.django_db


def trip():
    with Graph("trip", by="ann") as g:
        flight = g.add(book, what="flight", name="flight", undo=unbook.using(priority=7))
        car = g.add(rent, days=3, after=flight, undo=(return_car, {"car": result("rent")["car"]}))
        g.add(pay, amount=900, after=car)
    return g


def ended(state, *names):
    """Let these nodes end, and all that is left fail."""
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


def undone():
    g = failed()
    get_store().graphs.end()
    g.row.refresh_from_db()
    return g


def test_what_undoes_a_node_is_written_with_it():
    trip()
    found = {undo.node.name: undo for undo in Undo.objects.all()}
    assert found["flight"].type.identifier == "trip.unbook"
    assert (found["flight"].priority, found["flight"].created_by) == (7, "ann")
    assert found["flight"].data == '{"what":"flight"}'
    assert found["rent"].data == '{"car":{"$result":["rent","car"]}}'
    # Its Type is there, for whoever undoes it.
    assert Type.objects.filter(identifier="trip.return_car").exists()


def test_each_node_of_a_map_has_its_own():
    with Graph() as g:
        g.map(book, [{"what": "a"}, {"what": "b"}], undo=unbook)
    data = set(Undo.objects.values_list("data", flat=True))
    assert data == {'{"what":"a"}', '{"what":"b"}'}


def test_what_it_has_of_its_own_is_kept():
    with Graph() as g:
        g.add(book, what="flight", undo=unbook.using(timeout=5, max_retries=7))
    assert own.read(Undo.objects.get().own) == {"timeout": 5, "max_retries": 7}


class TestRefused:
    @pytest.fixture(autouse=True)
    def nothing_is_written(self):
        yield
        assert not GraphRow.objects.exists()
        assert not Instance.objects.exists()

    @pytest.mark.parametrize(
        ("undo", "words"),
        [
            (7, "must be a Type"),
            ((unbook, {"what": 1}, 3), "must be a Type"),
            (unbook.using(identifier="one"), "identifier"),
            (unbook.using(run_after="2100-01-01T00:00:00Z"), "run_after"),
            (unbook.using(existing="return", identifier="x"), "identifier"),
            (unbook.using(unique="x"), "unique"),
            ((unbook, {"what": result("later")}), "does not wait for it"),
            ((unbook, {"what": result("nobody")}), "there is no such node"),
        ],
    )
    def test_what_cannot_undo(self, undo, words):
        def write(g):
            g.add(noop, name="later", after=g.add(book, what="flight", undo=undo))

        with pytest.raises(InvalidGraph, match=words), Graph() as g:
            write(g)

    def test_arguments_that_do_not_fit(self):
        with pytest.raises(InvalidInputs, match=r"trip\.unbook"), Graph() as g:
            g.add(shade, path="p", undo=unbook)

    def test_too_many_with_what_undoes_them(self, monkeypatch):
        monkeypatch.setattr(plan, "MOST_NODES", 3)
        with pytest.raises(InvalidGraph, match="counts as two"), Graph() as g:
            g.map(book, [{"what": "a"}] * 2, undo=unbook)


class TestShown:
    def test_the_state_is_a_word(self):
        g = undone()
        assert reports.state(g.row, reports.counts_of(g.row)) == "undoing"
        assert reports.documents([g.row])[0]["state"] == "undoing"
        ended(State.FINISHED, "undo-flight", "undo-rent")
        assert reports.state(g.row, reports.counts_of(g.row)) == "undone"
        vertices, _ = reports.drawable(g.row)
        assert reports.state(g.row, reports.counts_in(vertices)) == "undone"

    def test_what_could_not_be_undone_has_failed(self):
        g = undone()
        ended(State.FAILED, "undo-flight")
        ended(State.FINISHED, "undo-rent")
        vertices, _ = reports.drawable(g.row)
        for counts in (reports.counts_of(g.row), reports.counts_in(vertices)):
            assert reports.state(g.row, counts) == "failed"
        assert reports.documents([g.row])[0]["state"] == "failed"

    def test_a_node_tells_which_it_undoes(self):
        g = undone()
        found = {
            each["name"]: each["undoes"]
            for each in reports.node_documents(list(reports.nodes(g.row)))
        }
        assert found["undo-rent"] == "rent"
        assert found["rent"] == ""

    def test_in_the_picture_it_stands_behind_that(self):
        _, links = reports.drawable(undone().row)
        names = dict(Instance.objects.values_list("pk", "node__name"))
        pairs = {(names[link.upstream], names[link.downstream]) for link in links}
        assert {("rent", "undo-rent"), ("undo-rent", "undo-flight")} <= pairs


class TestVerbs:
    def test_what_was_undone_is_not_redriven(self):
        g = undone()
        assert not VERBS[GRAPH]["redrive"].is_allowed(g.row)
        with pytest.raises(IllegalTransition, match="has been undone"):
            g.redrive()
        with pytest.raises(IllegalTransition, match="has been undone"):
            queue.redrive(g.instance("pay"))

    def test_what_could_not_be_undone_is_redriven(self):
        g = undone()
        ended(State.FAILED, "undo-rent")
        assert g.redrive(by="ann") == 1

    def test_before_it_is_undone_it_can_be_redriven(self):
        g = failed()
        assert g.redrive() == 1
        get_store().graphs.end()
        assert GraphRow.objects.get().undone is None

    def test_the_undo_can_be_cancelled(self):
        """It is FAILED then, and nothing undoes it again by itself."""
        g = undone()
        assert g.cancel() == 2
        get_store().graphs.end()
        assert reports.state(g.row, reports.counts_of(g.row)) == "failed"
        assert Instance.objects.filter(node__undoes__isnull=False).count() == 2


@pytest.mark.django_db(transaction=True)
def test_whoever_waits_waits_for_the_undo():
    g = failed()
    with pytest.raises(WaitTimeout):
        g.wait(timeout=0.1)
    get_store().graphs.end()
    ended(State.FINISHED, "undo-flight", "undo-rent")
    g.wait(timeout=10)


@pytest.mark.django_db(transaction=True)
def test_an_undo_that_is_written_between_two_looks_is_waited_for(monkeypatch):
    g = failed()

    def looked(graph, look=GraphRow._is_to_be_undone):
        get_store().graphs.end()
        return look(graph)

    monkeypatch.setattr(GraphRow, "_is_to_be_undone", looked)
    with pytest.raises(WaitTimeout):
        g.wait(timeout=0.1)


def test_a_graph_that_has_nothing_to_undo_is_not_waited_for_longer():
    with Graph() as g:
        g.add(echo, undo=None)
    ended(State.FAILED, "echo")
    get_store().graphs.end()
    assert GraphRow.objects.get().ended
