"""Locks that others hold on nodes of graphs: nobody else waits for them (G11, G17)."""

import threading

import pytest
from django.db import connection, transaction

from atp.models import Edge, Failing, Graph, Node, Task, Type
from atp.states import Event, State
from atp.store.common.graphs import failing
from atp.store.common.records import Records as ORMRecords
from atp.store.values import Move

from ..helpers import DEADLINE, Thread, at_once, open_transaction, wait_for
from .graphs import chain, submit
from .world import ONE, TWO

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor == 'sqlite'", reason="SQLite has one writer: nothing waits for a row"
    ),
]


def lock_node(key):
    """Lock a node as who adds an edge behind it does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM atp_node WHERE instance_id = %s FOR KEY SHARE", [key])


def finished(world, cases):
    now = world.store.now()
    return [Move(Event.FINISH, case.instance, case.attempt, now, now) for case in cases]


def deliver(world, host, moves):
    """Record as a daemon does, which waits for a lock only for a moment."""
    world.store.limit_waiting(0.1)
    try:
        return world.store.deliver(moves, daemon=host.uuid)
    finally:
        world.store.limit_waiting(0)


def test_an_edge_that_is_being_added_is_seen_by_the_end_that_waits_for_it(world):
    """G17: the end is not recorded before it is known whether the edge is there."""
    keys = submit(world, "abx", [("b", "x")])
    plain = world.enqueue()
    host = world.host()
    cases = host.claim()
    moves = finished(world, [case for case in cases if case.instance != keys["b"]])

    def add():
        lock_node(keys["a"])
        Edge.objects.create(upstream_id=keys["a"], downstream_id=keys["x"])
        Task.objects.filter(pk=keys["x"]).update(waits=2)

    with open_transaction(add):
        delivered = deliver(world, host, moves)
        assert delivered.locked == {keys["a"]}
        assert world.state(plain[0]) == State.FINISHED
        assert host.claim() == []
    assert deliver(world, host, moves[:1]).locked == frozenset()
    assert world.state(keys["a"]) == State.FINISHED
    assert world.task(keys["x"]).waits == 1


def test_a_cancel_in_a_transaction_and_an_end_lock_in_one_order(world, monkeypatch):
    """Else one of them would be the victim of a deadlock."""
    chain(world, "held", "waiting")
    host = world.host()
    [case] = host.claim()
    host.move(case, Event.START)
    cancel, begun = world.store.cancel, threading.Event()

    def beside_an_end(keys, **more):
        done = cancel(keys, **more)
        if not begun.is_set():
            begun.set()
            wait_for(is_anybody_waiting, what="the end that waits for the cancel")
        return done

    def conclude():
        assert begun.wait(DEADLINE)
        world.store.conclude(Move(Event.FINISH, case.instance, case.attempt))

    monkeypatch.setattr(world.store, "cancel", beside_an_end)
    ending = Thread(conclude)
    with transaction.atomic():
        world.store.graphs.cancel(Graph.objects.get().pk)
    ending.result()
    assert world.state(case.instance) == State.FINISHED


def test_whoever_has_locked_what_waits_holds_up_that_end_alone(world):
    """G11: as an operator does who changes its priority, in a transaction of his."""
    first, second = chain(world, "a", "b")
    other, last = chain(world, "c", "d")
    host = world.host()
    moves = finished(world, host.claim())

    def change():
        assert Task.objects.select_for_update().get(pk=second)

    with open_transaction(change):
        assert deliver(world, host, moves).locked == {first}
        assert world.state(other) == State.FINISHED
        assert world.task(last).waits == 0
    assert deliver(world, host, moves[:1]).refused == []
    assert world.task(second).waits == 0


def test_what_waits_and_is_locked_is_failed_later(world):
    """G17: a failure that cannot reach what waits for it is worked off by the chore."""
    first, second = chain(world, "a", "b")
    host = world.host()
    [case] = host.claim()
    host.move(case, Event.START)
    with open_transaction(lambda: lock_node(second)):
        host.move(case, Event.FAIL, reason="ERROR")
        assert world.state(second) == State.ACCEPTED
        assert world.store.graphs.fail_dependants() == 0
    assert world.store.graphs.fail_dependants() == 1
    assert world.state(second) == State.FAILED
    assert world.get(first).reason == "ERROR"


def test_a_node_that_an_application_has_locked_is_missed_by_nobody_else(world):
    """G11: what fails too late ones steps over it."""
    keys = submit(world, "ab", [])
    Task.objects.update(start_before=world.store.now())
    with open_transaction(lambda: lock_node(keys["a"])):
        assert world.store.miss() == 1
    assert world.store.miss() == 1


def test_who_has_locked_what_waits_for_any_end_holds_up_no_chore(world):
    """G11: what fails late nodes, or takes them from a lost daemon, steps over that one."""
    keys = submit(world, "abx", [("a", "x", "ended")])
    Task.objects.exclude(pk=keys["x"]).update(start_before=world.store.now())
    world.store.limit_waiting(0.1)
    with open_transaction(lambda: list(Task.objects.select_for_update().filter(pk=keys["x"]))):
        assert world.store.miss() == 1
        assert world.state(keys["b"]) == State.FAILED
    world.store.limit_waiting(0)
    assert world.store.miss() == 1
    assert world.task(keys["x"]).waits == 0


def test_ends_in_any_order_wait_for_each_other_in_no_circle(world):
    """Two daemons end many parents of the same children, each in an order of its own."""
    parents = [f"p{number}" for number in range(20)]
    children = [f"c{number}" for number in range(20)]
    keys = submit(world, parents + children, [(p, c) for p in parents for c in children])
    hosts = [world.host(), world.host()]
    shares = [host.claim(10) for host in hosts]
    batches = [finished(world, shares[0]), finished(world, reversed(shares[1]))]
    pairs = zip(hosts, batches, strict=True)
    outcomes = at_once(*[lambda pair=pair: pair[0].record(*pair[1]) for pair in pairs])
    assert outcomes == [[], []]
    assert set(Task.objects.values_list("waits", flat=True)) == {0}
    assert Node.objects.count() == len(keys)


def test_the_first_nodes_of_a_session_are_recorded_as_later_ones(world, monkeypatch):
    """G17: none goes through the portable store, one by one."""
    first, second = chain(world, "a", "b")
    host = world.host()
    cases = host.claim()
    portable = []
    monkeypatch.setattr(
        ORMRecords, "record", lambda self, moves, daemon=None: portable.extend(moves) or []
    )
    # A new session, which has met no node.
    connection.close()
    assert world.store.record(finished(world, cases), daemon=host.uuid) == []
    assert portable == []
    assert world.get(first).state == State.FINISHED
    assert world.task(second).waits == 0


def test_whoever_cancels_waits_for_the_node_and_keeps_no_task_meanwhile(world):
    """G17: the daemon that has the node may end it, and neither waits for the other for ever."""
    [key] = submit(world, "a", []).values()
    host = world.host()
    host.claim()
    begun = threading.Event()

    def cancel():
        begun.set()
        return world.store.cancel([key])

    with transaction.atomic():
        world.store.graphs.lock([key])
        canceller = Thread(cancel)
        assert begun.wait(DEADLINE)
        wait_for(is_anybody_waiting)
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM atp_task WHERE instance_id = %s FOR UPDATE NOWAIT", [key])
    assert canceller.result().asked == (key,)


def is_anybody_waiting():
    with connection.cursor() as cursor:
        # A transaction sees what it has seen first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone()[0] > 0


def test_a_locked_type_of_an_undo_holds_up_that_graph_alone(world):
    """G9: the others end, and it does once the lock is gone."""
    submit(world, "a", [])
    keys = submit(world, "cd", [("c", "d")], undos="c", types={"c": TWO, "d": TWO})
    host = world.host()
    assert world.store.record(finished(world, host.claim()), daemon=host.uuid) == []
    world.store.cancel([keys["d"]])
    locked = Type.objects.select_for_update().filter(identifier=ONE)
    world.store.limit_waiting(0.1)
    try:
        with open_transaction(lambda: list(locked)):
            assert world.store.graphs.end() == (1, 0)
        world.store.graphs.undo()
    finally:
        world.store.limit_waiting(0)
    assert Node.objects.filter(undoes=keys["c"]).exists()


def test_failed_nodes_before_one_that_is_locked_keep_no_others_waiting(world, monkeypatch):
    """Their dependant is locked: what other graphs wait for is failed all the same."""
    monkeypatch.setattr(failing, "ROWS", 3)
    monkeypatch.setattr(failing, "MOST", 0)
    parts = submit(world, [*"abc", "merge"], [(part, "merge") for part in "abc"])
    other = chain(world, "x", "y")
    roots = [parts[part] for part in "abc"] + other[:1]
    locked = Task.objects.select_for_update().filter(pk=parts["merge"])
    with open_transaction(lambda: list(locked)):
        world.store.cancel(roots)
        assert Failing.objects.count() == 4
        counts = [world.store.graphs.fail_dependants(limit=500) for _ in range(2)]
        assert sum(counts) == 1
        assert world.state(other[1]) == State.FAILED
    world.store.graphs.fail_dependants(limit=500)
    assert world.state(parts["merge"]) == State.FAILED
