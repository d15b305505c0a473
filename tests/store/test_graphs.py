"""Graphs in the store: nodes wait for others, and every end settles (G17)."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp.models import Edge, Failing, Graph, Instance, LogRecord, Node, Task
from atp.rows.log import Kind
from atp.rows.task import BLOCKED
from atp.states import Event, Reason, State
from atp.store.common.graphs import failing, removing
from atp.store.findings import Trouble
from atp.store.values import Move
from atp.words import graph_messages

from .. import environment
from ..nonsense import tells
from .broken import age, execute
from .graphs import chain, submit
from .world import ONE, TWO, registration, scope

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


def finish(host, case, **more):
    """Record that an attempt started and finished, as a daemon does."""
    now = host.world.store.now()
    host.move(case, Event.FINISH, started=now, time=now, **more)


def run_all(host, *, limit=100):
    """Let everything finish that is due; returns the keys in the order of their claims."""
    order = []
    while cases := host.claim(limit):
        order += [case.instance for case in cases]
        for case in cases:
            finish(host, case)
    return order


def test_a_node_waits_for_all_that_is_upstream(world):
    keys = submit(world, "abc", [("a", "c"), ("b", "c")])
    host = world.host()
    first, second = host.claim()
    assert {first.instance, second.instance} == {keys["a"], keys["b"]}
    assert world.task(keys["c"]).waits == 2
    assert world.task(keys["c"]).due_at == BLOCKED
    finish(host, first)
    assert host.claim() == []
    finish(host, second)
    assert [case.instance for case in host.claim()] == [keys["c"]]


def test_it_is_said_in_the_log_that_a_node_is_free(world):
    _, second = chain(world, "a", "b")
    run_all(world.host())
    kinds = [record.kind for record in world.log(second)]
    assert kinds == ["enqueue", "freed", "claim", "start", "finish"]


def test_a_node_after_nothing_is_due_at_once(world):
    keys = submit(world, "ab", [])
    assert world.task(keys["a"]).waits == 0
    assert run_all(world.host()) == list(keys.values())


def test_a_chain_runs_in_its_order(world):
    keys = chain(world, *"abcdef")
    assert run_all(world.host()) == keys


def test_its_not_before_is_kept(world):
    later = world.store.now() + timedelta(hours=1)
    _, second = chain(world, "a", "b", options={"b": {"due": later}})
    assert world.task(second).due_at == BLOCKED
    run_all(world.host())
    assert world.task(second).due_at == later
    assert world.task(second).waits == 0


def test_nothing_is_written_if_one_node_cannot_be(world):
    """All or nothing: the second has an identifier that is taken."""
    world.enqueue(identifier="taken")
    with pytest.raises(ValueError, match="taken"):
        submit(world, "ab", [("a", "b")], options={"b": {"identifier": "taken"}})
    assert not Graph.objects.exists()
    assert not Node.objects.exists()
    assert Task.objects.count() == 1


def test_what_is_in_no_graph_has_no_count(world):
    [key] = world.enqueue()
    assert world.task(key).waits is None


# Each way in which an Instance can end, by what it is called. What is added here has to
# settle: see test_no_other_place_ends_an_instance.


def by_record(world, key, host):
    [case] = host.claim()
    finish(host, case)


def by_record_in_parts(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FINISH, message="with a message")


def by_failing(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR)


def by_conclusion(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    world.store.conclude(Move(event=Event.FINISH, instance=key, attempt=case.attempt))


def unkept(world, key, host):
    [case] = host.claim()
    finish(host, case, kept=False)


def by_cancel(world, key, host):
    world.store.cancel([key])


def by_cancel_when_held(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    world.store.cancel([key])
    host.move(case, Event.RELEASE)


def by_drop(world, key, host):
    world.store.shut(scope(ONE), "drop")
    assert world.store.drop() == 1
    world.store.open(scope(ONE))


def by_miss(world, key, host):
    Task.objects.filter(pk=key).update(start_before=world.store.now() - SECOND)
    assert world.store.miss() == 1


def by_claim_that_is_late(world, key, host):
    Task.objects.filter(pk=key).update(start_before=world.store.now() - SECOND)
    assert host.claim() == []


def by_sweep(world, key, host):
    for _ in range(5):
        lost = world.host(name="lost")
        cases = lost.claim()
        if not cases:
            break
        lost.move(cases[0], Event.START)
        lost.lose_lease()
        world.store.sweep()


def by_scan(world, key, host):
    """A scan finds that nobody holds it, once too often."""
    for _ in range(5):
        cases = host.claim()
        if not cases:
            break
        host.move(cases[0], Event.START)
        Task.objects.filter(pk=key).update(daemon=None)
        age(key)
        world.store.scan()


FINISHING = [by_record, by_record_in_parts, by_conclusion, unkept]
FAILING = [
    *(by_failing, by_cancel, by_cancel_when_held, by_drop, by_miss, by_claim_that_is_late),
    *(by_sweep, by_scan),
]


@pytest.fixture
def other(world):
    """Nodes of another Type, so that no gate is theirs."""
    world.store.register([registration(ONE), registration(TWO)])
    return {"b": TWO, "c": TWO, "d": TWO}


@pytest.mark.parametrize("way", [*FINISHING, *FAILING], ids=lambda way: way.__name__)
def test_every_end_satisfies_what_waits_for_any(world, other, way):
    """G17: whatever ends a node frees what waits for its end."""
    first, second = chain(world, "a", "b", on="ended", types=other)
    way(world, first, world.host(ONE))
    assert world.get(first).is_terminal
    assert [case.instance for case in world.host(TWO).claim()] == [second]


@pytest.mark.parametrize("way", FAILING, ids=lambda way: way.__name__)
def test_every_failure_fails_what_waits_for_a_result(world, other, way):
    """G17: and each that it fails is logged with the node and the reason."""
    keys = chain(world, "a", "b", "c", "d", types=other)
    way(world, keys[0], world.host(ONE))
    reason = world.get(keys[0]).reason
    for key, before, why in zip(keys[1:], "abc", [reason, *["UPSTREAM"] * 2], strict=True):
        instance = world.get(key)
        assert (instance.state, instance.reason) == (State.FAILED, Reason.UPSTREAM)
        assert tells(world.log(key)[-1].message, graph_messages.upstream_failed(before, why))


@pytest.mark.parametrize("way", FINISHING, ids=lambda way: way.__name__)
def test_every_finish_frees_what_waits_for_it(world, other, way):
    first, second = chain(world, "a", "b", types=other)
    way(world, first, world.host(ONE))
    assert world.state(first) == State.FINISHED
    assert [case.instance for case in world.host(TWO).claim()] == [second]


# Where a Task is removed, and how its end is settled there.
SETTLED = {
    "store/common/batch.py": "Batch.write() settles",
    "store/sqlite/grouped.py": "Records.record() settles; see sqlite/records.py",
    "store/postgresql/sql/finish.sql": "leaves nodes alone, or its caller settles",
    "store/postgresql/sql/record.sql": "leaves nodes alone, or its caller settles",
    "store/postgresql/sql/finish_unkept.sql": "leaves nodes alone",
    "store/common/mending.py": "removes Tasks of what had ended or was gone",
}


def test_no_other_place_ends_an_instance():
    """G17: who adds a place that removes Tasks has to settle there, and to say so here."""
    removes = re.compile(r"DELETE FROM atp_task|(?:\(Task\)|\b_?tasks\b)[^\n]*\.delete\(\)")
    folder = environment.ROOT / "atp"
    paths = [*folder.rglob("*.py"), *folder.rglob("*.sql")]
    found = {str(p.relative_to(folder)) for p in paths if removes.search(p.read_text())}
    assert found == SETTLED.keys()
    for name in found:
        if name.endswith(".sql"):
            assert "task.waits IS NULL" in (folder / name).read_text()


def test_a_batch_of_both_kinds(world):
    """Nodes and others in one batch, again and again: a connection learns that there are nodes."""
    host = world.host()
    for _ in range(3):
        first, second = chain(world, "a", "b")
        plain = world.enqueue(3)
        cases = host.claim()
        now = world.store.now()
        moves = [
            Move(Event.FINISH, case.instance, case.attempt, time=now, started=now, kept=n != 2)
            for n, case in enumerate(cases)
        ]
        assert host.record(*moves) == []
        assert world.state(first) == State.FINISHED
        assert {world.state(key) for key in plain if world.task(key)} == set()
        [case] = host.claim()
        assert case.instance == second
        finish(host, case)


def test_a_late_end_of_a_node_is_refused_and_settles_nothing(world):
    """G4: the fence comes first."""
    first, second = chain(world, "a", "b")
    host = world.host()
    for _ in range(2):
        [case] = host.claim()
        host.move(case, Event.RELEASE)
        now = world.store.now()
        late = Move(Event.FINISH, first, case.attempt, time=now, started=now)
        assert host.record(late) == [late]
        assert world.task(second).waits == 1
    assert run_all(host) == [first, second]


def test_what_waits_for_any_end_runs_after_a_failure(world):
    keys = submit(world, "abcd", [("a", "b"), ("b", "c", "ended"), ("c", "d")])
    host = world.host()
    by_failing(world, keys["a"], host)
    assert world.get(keys["b"]).reason == Reason.UPSTREAM
    assert run_all(host) == [keys["c"], keys["d"]]


def test_of_two_that_fail_each_dependant_fails_once(world):
    keys = submit(world, "abc", [("a", "c"), ("b", "c")])
    host = world.host()
    cases = host.claim()
    moves = [
        Move(Event.FAIL, case.instance, case.attempt, started=world.store.now(), reason="ERROR")
        for case in cases
    ]
    assert host.record(*moves) == []
    assert world.events(keys["c"]) == ["enqueue", "fail"]


class TestPortions:
    def test_what_is_too_much_for_one_transaction_is_left_to_a_chore(self, world):
        names = [f"n{n}" for n in range(700)]
        keys = submit(world, ["a", *names], [("a", name) for name in names])
        host = world.host()
        by_failing(world, keys["a"], host)
        assert Task.objects.count() == 200
        assert [row.pk for row in Failing.objects.all()] == [keys["a"]]
        assert world.store.graphs.fail_dependants(limit=150) == 150
        assert world.store.graphs.fail_dependants(limit=150) == 50
        assert not Failing.objects.exists()
        assert not Task.objects.exists()
        assert world.store.graphs.fail_dependants() == 0

    def test_a_long_chain_is_failed_in_portions(self, world):
        keys = chain(world, *[f"n{n}" for n in range(130)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failing, "MOST", 50)
            by_failing(world, None, world.host())
        left = []
        while world.store.graphs.fail_dependants(limit=30):
            left.append(Task.objects.count())
        assert left == [49, 19, 0]
        assert not Failing.objects.exists()
        failed = LogRecord.objects.filter(kind=Event.FAIL, instance__in=keys[1:]).order_by("id")
        told = dict(failed.values_list("instance", "message"))
        assert told[keys[1]] == "n0 failed (ERROR)"
        assert {told[keys[n]] == f"n{n - 1} failed (UPSTREAM)" for n in range(2, 130)} == {True}

    def test_a_chain_takes_as_many_statements_however_long_it_is(self, world):
        """The chore may not need longer for a chain than for nodes beside each other."""
        counts = []
        for length in (10, 200):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(failing, "MOST", 0)
                first, *others = chain(world, *[f"n{n}" for n in range(length)])
                world.store.cancel([first])
            with CaptureQueriesContext(connection) as captured:
                assert world.store.graphs.fail_dependants() == len(others)
            counts.append(len(captured))
        # Rows are inserted by the hundred.
        assert counts[1] <= counts[0] + 5

    @pytest.mark.parametrize("is_last", [False, True])
    def test_many_ways_to_a_node_are_no_more_work(self, world, is_last):
        """A ladder of diamonds: the number of ways doubles with each of its 40 steps."""
        names = ["top", *(f"{side}{n}" for n in range(40) for side in "lr")]
        edges = [("top", "l0"), ("top", "r0")]
        edges += [(f"{a}{n}", f"{b}{n + 1}") for n in range(39) for a in "lr" for b in "lr"]
        keys = submit(world, names, edges)
        world.store.cancel([keys["l39" if is_last else "top"]])
        while world.store.graphs.fail_dependants(limit=20):
            pass
        assert Task.objects.count() == (len(names) - 1 if is_last else 0)

    def test_failed_nodes_have_their_turn_one_after_the_other(self, world, monkeypatch):
        """One with very many dependants does not keep the others waiting."""
        monkeypatch.setattr(failing, "ROWS", 1)
        monkeypatch.setattr(failing, "MOST", 0)
        many = [f"m{n}" for n in range(40)]
        large = submit(world, ["a", *many], [("a", name) for name in many])
        small = chain(world, "x", "y")
        world.store.cancel([large["a"], small[0]])
        for _ in range(2):
            assert world.store.graphs.fail_dependants(limit=10)
        assert world.state(small[1]) == State.FAILED
        while world.store.graphs.fail_dependants(limit=10):
            pass
        assert not Task.objects.exists()


class TestRedrive:
    def failed(self, world, on="finished"):
        keys = chain(world, "a", "b", on=on)
        host = world.host()
        by_failing(world, keys[0], host)
        return host, keys

    def test_the_root_runs_again_and_then_the_others(self, world):
        host, (first, second) = self.failed(world)
        assert world.as_anyone(Event.REDRIVE, first) == []
        assert world.as_anyone(Event.REDRIVE, second) == []
        assert world.task(second).waits == 1
        assert run_all(host) == [first, second]

    def test_both_at_once_in_whatever_order(self, world):
        host, keys = self.failed(world)
        moves = [Move(event=Event.REDRIVE, instance=key) for key in reversed(keys)]
        assert world.store.record(moves) == []
        assert run_all(host) == keys

    def test_what_waits_for_a_failed_one_is_refused(self, world):
        _, (_, second) = self.failed(world)
        assert len(world.as_anyone(Event.REDRIVE, second)) == 1
        assert world.state(second) == State.FAILED

    def test_what_waits_for_any_end_waits_again(self, world):
        keys = submit(world, "abc", [("a", "c", "ended"), ("b", "c")])
        host = world.host()
        [case, other] = host.claim()
        host.move(case, Event.START)
        host.move(case, Event.FAIL, reason=Reason.ERROR)
        assert world.task(keys["c"]).waits == 1
        assert world.as_anyone(Event.REDRIVE, keys["a"]) == []
        assert world.task(keys["c"]).waits == 2
        finish(host, other)
        assert world.task(keys["c"]).waits == 1
        assert run_all(host) == [keys["a"], keys["c"]]

    @pytest.mark.parametrize("was_claimed", [False, True])
    def test_what_was_freed_by_a_failure_waits_again(self, world, was_claimed):
        """G17: what cleans up after a node does not run beside it."""
        host, (first, second) = self.failed(world, on="ended")
        assert world.task(second).waits == 0
        if was_claimed:
            [case] = host.claim()
            host.move(case, Event.RELEASE)
        assert world.as_anyone(Event.REDRIVE, first) == []
        assert (world.task(second).waits, world.task(second).due_at) == (1, BLOCKED)
        assert run_all(host) == [first, second]

    def test_what_runs_already_goes_on(self, world):
        host, (first, second) = self.failed(world, on="ended")
        [case] = host.claim()
        assert world.as_anyone(Event.REDRIVE, first) == []
        assert (case.instance, world.task(second).waits) == (second, 0)
        finish(host, case)
        assert run_all(host) == [first]

    def test_what_a_chore_fails_meanwhile_is_redriven_too(self, world, monkeypatch):
        """Else it stays FAILED for ever, and a saga would be undone."""
        monkeypatch.setattr(failing, "MOST", 3)
        graphs, parts = world.store.graphs, [f"p{n}" for n in range(10)]
        keys = submit(world, ["a", *parts], [("a", part) for part in parts])
        host = world.host()
        by_failing(world, keys["a"], host)
        in_order = graphs._in_order

        def after_a_chore(keys):
            graphs.fail_dependants(limit=4)
            return in_order(keys)

        monkeypatch.setattr(graphs, "_in_order", after_a_chore)
        # What nothing has failed yet needs no redrive.
        assert graphs.redrive(Graph.objects.get().pk) > 4
        assert not Instance.objects.filter(state=State.FAILED).exists()
        assert len(run_all(host)) == 11

    @pytest.mark.parametrize("has_begun", [False, True])
    def test_a_node_that_has_never_begun_keeps_its_time(self, world, has_begun):
        """Who holds it back until it is approved goes on to do so."""
        due = world.store.now() + timedelta(days=3650)
        keys = submit(world, "a", [], options={"a": {"due": due}})
        if has_begun:
            Task.objects.update(due_at=world.store.now())
            by_failing(world, keys["a"], world.host())
        else:
            world.store.cancel([keys["a"]])
        assert world.as_anyone(Event.REDRIVE, keys["a"]) == []
        assert (world.task(keys["a"]).due_at == due) is not has_begun

    def test_the_graph_goes_on(self, world):
        _, (first, _) = self.failed(world)
        assert world.store.graphs.end() == (1, 0)
        assert Graph.objects.get().ended is not None
        world.as_anyone(Event.REDRIVE, first)
        assert Graph.objects.get().ended is None


class TestEndOfGraph:
    def test_it_has_ended_with_its_last_node(self, world):
        keys = chain(world, "a", "b")
        host = world.host()
        assert world.store.graphs.end() == (0, 0)
        run_all(host)
        assert world.store.graphs.end() == (1, 0)
        assert Graph.objects.get().ended == world.get(keys[1]).finished
        assert world.store.graphs.end() == (0, 0)

    def test_retention_removes_it_as_a_whole(self, world):
        """G12: nothing of it goes before all of it may."""
        short, long = (
            registration(ONE, retention=100 * SECOND),
            registration(TWO, retention=500 * SECOND),
        )
        world.store.register([short, long])
        keys = chain(world, "a", "b", types={"b": TWO})
        host = world.host()
        run_all(host)
        plain = world.enqueue(type=short)
        run_all(host)
        self.back(world, 300)
        assert world.store.purge() == 1
        assert world.store.graphs.end() == (1, 0)
        assert world.store.graphs.purge() == 0
        assert not world.store.purge(instances=keys)
        self.back(world, 300)
        assert world.store.graphs.purge() == 2
        assert [model.objects.count() for model in (Graph, Node, Edge)] == [0, 0, 0]
        assert not LogRecord.objects.filter(instance__in=[*keys, *plain]).exists()

    def test_it_goes_in_parts(self, world):
        world.store.register([registration(ONE, retention=SECOND)])
        chain(world, *"abcde")
        run_all(world.host())
        self.back(world, 3)
        world.store.graphs.end()
        assert world.store.graphs.purge(limit=2) == 2
        assert Node.objects.count() == 3
        assert world.store.graphs.purge(limit=2) == 2
        assert world.store.graphs.purge(limit=2) == 1
        assert not Graph.objects.exists()

    def test_graphs_that_are_kept_for_ever_keep_no_others(self, world, monkeypatch):
        """Also if they are more than one purge looks at: the next one goes on behind them."""
        monkeypatch.setattr(removing, "GRAPHS", 4)
        monkeypatch.setattr(removing, "PART", 2)
        world.store.register([registration(ONE), registration(TWO, retention=SECOND)])
        for _ in range(5):
            chain(world, "a")
        chain(world, "b", types={"b": TWO})
        run_all(world.host())
        self.back(world, 300)
        world.store.graphs.end()
        last = Graph.objects.filter(nodes__instance__type__identifier=TWO)
        last.update(ended=world.store.now() - 10 * SECOND)
        assert [world.store.graphs.purge() for _ in range(4)] == [0, 1, 0, 0]
        assert Graph.objects.count() == 5

    def back(self, world, seconds):
        """What has ended, ended so much longer ago."""
        for instance in Instance.objects.filter(finished__isnull=False):
            instance.finished -= seconds * SECOND
            instance.save(update_fields=["finished"])
        for graph in Graph.objects.filter(ended__isnull=False):
            graph.ended -= seconds * SECOND
            graph.save(update_fields=["ended"])


class TestScan:
    """G17: what everybody else relies on is counted again."""

    @pytest.mark.parametrize(("waits", "due"), [(1, False), (5, False), (1, True)])
    def test_a_wrong_number_is_set_right(self, world, waits, due):
        keys = submit(world, "abc", [("a", "c"), ("b", "c")])
        if due:
            cases = world.host().claim()
            for case in cases[:1]:
                finish(world.hosts[0], case)
            waits = 3
        Task.objects.filter(pk=keys["c"]).update(waits=waits)
        [finding] = world.store.scan().findings
        assert finding.trouble == Trouble.MISCOUNTED
        assert finding.done
        assert world.task(keys["c"]).waits == (1 if due else 2)
        assert world.log(keys["c"])[-1].kind == Kind.MENDED
        assert world.store.scan().findings == ()

    def test_what_waits_for_nothing_more_is_freed(self, world):
        _, second = chain(world, "a", "b")
        host = world.host()
        [case] = host.claim()
        finish(host, case)
        Task.objects.filter(pk=second).update(waits=1, due_at=BLOCKED)
        world.store.scan()
        assert [case.instance for case in host.claim()] == [second]

    def test_what_is_freed_so_keeps_its_not_before(self, world):
        later = world.store.now() + timedelta(hours=1)
        _, second = chain(world, "a", "b", options={"b": {"due": later}})
        run_all(world.host())
        Task.objects.filter(pk=second).update(waits=1, due_at=BLOCKED)
        world.store.scan()
        assert (world.task(second).waits, world.task(second).due_at) == (0, later)

    def test_a_node_that_was_deleted_by_hand_stops_no_scan(self, world):
        """What waited for it goes on."""
        first, second = chain(world, "a", "b")
        for table in ("task", "inputs", "logrecord"):
            execute(f"DELETE FROM atp_{table} WHERE instance_id = %s", first)
        execute("DELETE FROM atp_instance WHERE id = %s", first)
        assert world.store.scan().findings
        assert world.task(second).waits == 0
        execute("DELETE FROM atp_edge WHERE upstream_id = %s", first)

    def test_what_waits_for_one_that_failed_is_failed(self, world):
        _, second = chain(world, "a", "b")
        host = world.host()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failing, "MOST", 0)
            by_failing(world, None, host)
        Failing.objects.all().delete()
        [finding] = world.store.scan().findings
        assert finding.trouble == Trouble.MISCOUNTED
        assert world.store.graphs.fail_dependants() == 1
        assert world.get(second).reason == Reason.UPSTREAM

    def test_what_is_right_is_no_finding(self, world):
        submit(world, "abc", [("a", "c"), ("b", "c", "ended")])
        assert world.store.scan().findings == ()

    def test_without_repair_it_is_told(self, world):
        _, second = chain(world, "a", "b")
        Task.objects.filter(pk=second).update(waits=2)
        assert len(world.store.scan(repair=False).findings) == 1
        assert world.task(second).waits == 2
        world.store.scan()


def test_a_node_that_is_handed_back_meanwhile_is_cancelled_too(world, monkeypatch):
    """G17: cancelling a graph ends all nodes that have not ended."""
    keys = submit(world, "ab", [("a", "b")])
    host = world.host()
    [case] = host.claim()
    host.move(case, Event.START)
    cancel = world.store.cancel

    def and_back(some, **more):
        done = cancel(some, **more)
        if world.state(keys["a"]) == State.RUNNING and keys["b"] in some:
            host.move(case, Event.RETRY, delay=timedelta(days=1))
        return done

    monkeypatch.setattr(world.store, "cancel", and_back)
    world.store.graphs.cancel(Graph.objects.get().pk)
    assert {world.state(key) for key in keys.values()} == {State.FAILED}
