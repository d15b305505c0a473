"""Graphs in the store: nodes wait for others, and every end settles (G17)."""

import signal
import subprocess
import sys

import pytest

from atp import messages
from atp.models import BLOCKED, Edge, Failing, Graph, Instance, Kind, LogRecord, Node, Task
from atp.states import Event, Reason, State
from atp.store.values import Move

from ..helpers import DEADLINE, child_environment
from ..nonsense import tells
from .broken import delete_instance, execute
from .ends import FAILING, FINISHING, by_failing, finish, running
from .graphs import chain, run, submit
from .internals import Trouble, graph_ends
from .world import DAY, HOUR, ONE, SECOND, TWO, finish_of, registration


def test_a_node_waits_for_all_that_is_upstream_and_its_not_before_is_kept(world):
    """Also if a scan sets it free, as it waits for nothing."""
    later = world.store.now() + HOUR
    keys = submit(
        world, "abcd", [("a", "c"), ("b", "c"), ("b", "d")], options={"d": {"due": later}}
    )
    host = world.host()
    first, second = host.claim()
    assert {first.instance, second.instance} == {keys["a"], keys["b"]}
    assert (world.task(keys["c"]).waits, world.task(keys["c"]).due_at) == (2, BLOCKED)
    finish(host, first)
    assert host.claim() == []
    finish(host, second)
    assert [case.instance for case in host.claim()] == [keys["c"]]
    for _ in range(2):
        assert (world.task(keys["d"]).waits, world.task(keys["d"]).due_at) == (0, later)
        Task.objects.filter(pk=keys["d"]).update(waits=1, due_at=BLOCKED)
        world.store.upkeep.scan()


def test_nothing_is_written_if_one_node_cannot_be(world):
    """All or nothing: the second has an identifier that is taken."""
    world.enqueue(identifier="taken")
    with pytest.raises(ValueError, match="taken"):
        submit(world, "ab", [("a", "b")], options={"b": {"identifier": "taken"}})
    assert not Graph.objects.exists()
    assert not Node.objects.exists()
    assert Task.objects.count() == 1


_PROCESS = """
import os, signal

import django

django.setup()
from django.db import connection
from atp.store import get_store
from tests.store.graphs import plan

def die(execute, sql, params, many, context):
    done = execute(sql, params, many, context)
    if "INSERT INTO atp_edge" in sql:  # what is written last
        os.kill(os.getpid(), signal.SIGKILL)
    return done

# More than are written by one statement.
nodes = [f"node-{number}" for number in range(2500)]
with connection.execute_wrapper(die):
    get_store().graphs.submit(plan(nodes, [("node-0", node) for node in nodes[1:]]))
"""


def test_a_process_that_is_killed_halfway_leaves_nothing(transactional_db):
    """G1, G7."""
    command = [sys.executable, "-c", _PROCESS]
    process = subprocess.run(command, env=child_environment(), timeout=2 * DEADLINE, check=False)
    assert process.returncode == -signal.SIGKILL
    for model in (Graph, Node, Edge, Instance, Task):
        assert not model.objects.exists(), model
    assert not LogRecord.objects.filter(instance__isnull=False).exists()


@pytest.mark.parametrize("way", [*FINISHING, *FAILING], ids=lambda way: way.__name__)
def test_every_end_settles_what_waits_for_it(world, way):
    """G17: what waits for the end is free; what waits for the result is so, or fails with it.

    And each that fails is logged with the node and the reason.
    """
    world.store.types.register([registration(ONE), registration(TWO)])
    edges = [("a", "any", "ended"), ("a", "b", "finished"), ("b", "c", "finished")]
    others = dict.fromkeys(["any", "b", "c"], TWO)  # of another Type, so that no gate is theirs
    keys = submit(world, ["a", *others], edges, types=others)
    way(world, keys["a"], world.host(ONE))
    instance = world.get(keys["a"])
    assert instance.is_terminal
    if way in FINISHING:
        assert instance.state == State.FINISHED
        free = {keys["any"], keys["b"]}
    else:
        free = {keys["any"]}
        for key, before, why in (("b", "a", instance.reason), ("c", "b", "UPSTREAM")):
            failed = world.get(keys[key])
            assert (failed.state, failed.reason) == (State.FAILED, Reason.UPSTREAM)
            told = messages.upstream_failed(before, why)
            assert tells(world.log(keys[key])[-1].message, told)
    assert {case.instance for case in world.host(TWO).claim()} == free


def test_nodes_and_others_in_one_batch_and_a_late_end_that_settles_nothing(world, host):
    """G4: the fence comes first. Again and again: a connection learns that there are nodes."""
    for _ in range(3):
        first, second = chain(world, "a", "b")
        [lost] = host.claim()
        host.move(lost, Event.RELEASE)
        plain = world.enqueue(3)
        moves = [finish_of(world, case, kept=n != 2) for n, case in enumerate(host.claim())]
        late = moves[0]._replace(instance=first, attempt=lost.number)
        assert host.record(late) == [late]
        assert world.task(second).waits == 1
        assert host.record(*moves) == []
        assert world.state(first) == State.FINISHED
        assert not Task.objects.filter(pk__in=plain).exists()
        [case] = host.claim()
        assert case.instance == second
        finish(host, case)


class TestPortions:
    def fail_all(self, world, limit):
        while world.store.graph_ends.fail_dependants(limit=limit):
            pass
        assert not Task.objects.exists()

    def test_what_is_too_much_for_one_transaction_is_left_to_a_job(self, world, monkeypatch):
        monkeypatch.setattr(graph_ends, "MOST", 50)
        names = [f"n{n}" for n in range(70)]
        keys = submit(world, ["a", *names], [("a", name) for name in names])
        host = world.host()
        by_failing(world, keys["a"], host)
        assert Task.objects.count() == 20
        assert [row.pk for row in Failing.objects.all()] == [keys["a"]]
        assert world.store.graph_ends.fail_dependants(limit=15) == 15
        assert world.store.graph_ends.fail_dependants(limit=15) == 5
        assert not Failing.objects.exists()
        assert not Task.objects.exists()
        assert world.store.graph_ends.fail_dependants() == 0

    def test_many_ways_to_a_node_are_no_more_work(self, world):
        """A ladder of diamonds: the number of ways doubles with each of its 40 steps."""
        names = ["top", *(f"{side}{n}" for n in range(40) for side in "lr")]
        edges = [("top", "l0"), ("top", "r0")]
        edges += [(f"{a}{n}", f"{b}{n + 1}") for n in range(39) for a in "lr" for b in "lr"]
        keys = submit(world, names, edges)
        world.store.control.cancel([keys["top"]])
        self.fail_all(world, limit=20)

    def test_failed_nodes_have_their_turn_one_after_the_other(self, world, monkeypatch):
        """One with very many dependants does not keep the others waiting."""
        monkeypatch.setattr(graph_ends, "ROWS", 1)
        monkeypatch.setattr(graph_ends, "MOST", 0)
        many = [f"m{n}" for n in range(40)]
        large = submit(world, ["a", *many], [("a", name) for name in many])
        small = chain(world, "x", "y")
        world.store.control.cancel([large["a"], small[0]])
        for _ in range(2):
            assert world.store.graph_ends.fail_dependants(limit=10)
        assert world.state(small[1]) == State.FAILED
        self.fail_all(world, limit=10)


class TestRedrive:
    def failed(self, world, on="finished"):
        keys = chain(world, "a", "b", on=on)
        host = world.host()
        by_failing(world, keys[0], host)
        return host, keys

    def test_both_at_once_in_whatever_order(self, world):
        """What waits for a failed one is refused; the graph goes on."""
        host, keys = self.failed(world)
        assert world.store.graph_ends.end() == (1, 0)
        assert Graph.objects.get().ended is not None
        assert len(world.as_anyone(Event.REDRIVE, keys[1])) == 1
        assert world.state(keys[1]) == State.FAILED
        moves = [Move(event=Event.REDRIVE, instance=key) for key in reversed(keys)]
        assert world.store.records.record(moves) == []
        assert Graph.objects.get().ended is None
        assert run(host) == ["a", "b"]

    @pytest.mark.parametrize("runs", [False, True])
    def test_what_was_freed_by_a_failure_waits_again_unless_it_runs_already(self, world, runs):
        """G17: what cleans up after a node does not run beside it."""
        host, (first, second) = self.failed(world, on="ended")
        assert world.task(second).waits == 0
        [case] = host.claim()
        if not runs:
            host.move(case, Event.RELEASE)
        assert world.as_anyone(Event.REDRIVE, first) == []
        found = world.task(second)
        assert (found.waits, found.due_at == BLOCKED) == ((0, False) if runs else (1, True))
        if runs:
            finish(host, case)
        assert run(host) == ["a", "b"][: 1 if runs else 2]

    @pytest.mark.parametrize("has_begun", [False, True])
    def test_a_node_that_has_never_begun_keeps_its_time(self, world, has_begun):
        """Who holds it back until it is approved goes on to do so."""
        due = world.store.now() + 3650 * DAY
        keys = submit(world, "a", [], options={"a": {"due": due}})
        if has_begun:
            Task.objects.update(due_at=world.store.now())
            by_failing(world, keys["a"], world.host())
        else:
            world.store.control.cancel([keys["a"]])
        assert world.as_anyone(Event.REDRIVE, keys["a"]) == []
        assert (world.task(keys["a"]).due_at == due) is not has_begun


class TestEndOfGraph:
    def test_it_has_ended_with_its_last_node(self, world):
        """Until then daemons look after it."""
        look, host = world.store.daemons.outlook, world.host()
        assert not look([ONE]).graphs
        keys = chain(world, "a", "b")
        assert look([ONE], daemon=host.uuid).graphs
        assert world.store.graph_ends.end() == (0, 0)
        run(host)
        assert look([ONE]).graphs
        assert world.store.graph_ends.end() == (1, 0)
        assert Graph.objects.get().ended == world.get(keys[1]).finished
        assert world.store.graph_ends.end() == (0, 0)
        assert not look([ONE]).graphs

    def test_retention_removes_it_as_a_whole(self, world):
        """G12: nothing of it goes before all of it may."""
        short = registration(ONE, retention=100 * SECOND)
        world.store.types.register([short, registration(TWO, retention=500 * SECOND)])
        keys = chain(world, "a", "b", types={"b": TWO})
        host = world.host()
        run(host)
        plain = world.enqueue(type=short)
        run(host)
        self.back(300 * SECOND)
        assert world.store.removal.purge() == 1
        assert world.store.graph_ends.end() == (1, 0)
        assert world.store.graph_ends.purge() == 0
        assert not world.store.removal.purge(instances=keys)
        self.back(300 * SECOND)
        assert world.store.graph_ends.purge() == 2
        assert [model.objects.count() for model in (Graph, Node, Edge)] == [0, 0, 0]
        assert not LogRecord.objects.filter(instance__in=[*keys, *plain]).exists()

    def test_graphs_that_are_kept_for_ever_keep_no_others(self, world, monkeypatch):
        """Also if they are more than one purge looks at: the next one goes on behind them."""
        monkeypatch.setattr(graph_ends, "GRAPHS", 4)
        monkeypatch.setattr(graph_ends, "PART", 2)
        world.store.types.register([registration(ONE), registration(TWO, retention=SECOND)])
        for _ in range(5):
            chain(world, "a")
        chain(world, "b", types={"b": TWO})
        run(world.host())
        self.back(300 * SECOND)
        world.store.graph_ends.end()
        last = Graph.objects.filter(nodes__instance__type__identifier=TWO)
        last.update(ended=world.store.now() - 10 * SECOND)
        assert [world.store.graph_ends.purge() for _ in range(4)] == [0, 1, 0, 0]
        assert Graph.objects.count() == 5

    def back(self, time):
        """What has ended, ended so much longer ago."""
        for model, column in ((Instance, "finished"), (Graph, "ended")):
            for row in model.objects.exclude(**{column: None}):
                model.objects.filter(pk=row.pk).update(**{column: getattr(row, column) - time})


class TestScan:
    """G17: what everybody else relies on is counted again."""

    @pytest.mark.parametrize(("ended", "wrong", "right"), [(0, 1, 2), (1, 3, 1)])
    def test_a_wrong_number_is_set_right(self, world, ended, wrong, right):
        keys = submit(world, "abc", [("a", "c"), ("b", "c")])
        host = world.host()
        finish(host, *host.claim(ended))
        Task.objects.filter(pk=keys["c"]).update(waits=wrong)
        [finding] = world.store.upkeep.scan().findings
        assert (finding.trouble, bool(finding.done)) == (Trouble.MISCOUNTED, True)
        assert world.task(keys["c"]).waits == right
        assert world.log(keys["c"])[-1].kind == Kind.MENDED
        assert world.store.upkeep.scan().findings == ()

    def test_a_node_that_was_deleted_by_hand_stops_no_scan(self, world):
        """What waited for it goes on."""
        first, second = chain(world, "a", "b")
        delete_instance(first, "task", "inputs", "logrecord")
        assert world.store.upkeep.scan().findings
        assert world.task(second).waits == 0
        execute("DELETE FROM atp_edge WHERE upstream_id = %s", first)


def test_a_node_that_is_handed_back_meanwhile_is_cancelled_too(world, monkeypatch):
    """G17: cancelling a graph ends all nodes that have not ended."""
    keys = submit(world, "ab", [("a", "b")])
    host = world.host()
    case = running(host)
    cancel = world.store.control.cancel

    def and_back(some, **more):
        done = cancel(some, **more)
        if world.state(keys["a"]) == State.RUNNING and keys["b"] in some:
            host.move(case, Event.RETRY, delay=DAY)
        return done

    monkeypatch.setattr(world.store.control, "cancel", and_back)
    world.store.graphs.cancel(Graph.objects.get().pk)
    assert {world.state(key) for key in keys.values()} == {State.FAILED}
