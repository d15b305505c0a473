"""Locks that others hold on what a daemon writes to: nobody else waits for them (G9, G11, G17)."""

import contextlib
import threading
from itertools import product

import pytest
from django.db import transaction

from atp.models import Edge, Failing, Graph, Kind, Limit, LogRecord, Node, Task, Type
from atp.states import Event, State
from atp.store.values import Message, ProgressUpdate

from ..helpers import DEADLINE, Thread, at_once, open_transaction, wait_for
from .broken import execute
from .ends import running
from .graphs import chain, submit
from .internals import graph_ends
from .test_lanes import claimed, lanes
from .world import (
    ONE,
    TWO,
    finish_of,
    is_anybody_waiting_for_a_lock,
    move_of,
    needs_row_locks,
    scope,
)

pytestmark = [pytest.mark.django_db(transaction=True), needs_row_locks]


@contextlib.contextmanager
def impatient(world, work):
    """While somebody else keeps a transaction open, wait for its locks as a daemon does."""
    world.store.limit_waiting(0.1)
    try:
        with open_transaction(work):
            yield
    finally:
        world.store.limit_waiting(0)


def lock(rows):
    """Return a function that locks rows as whoever deletes them does."""
    return lambda: list(rows.select_for_update())


def finished(world, cases):
    return [finish_of(world, case) for case in cases]


def test_a_log_that_is_to_be_shortened(world, settings):
    """G11: the notes of that attempt wait; those of its neighbour are written."""
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    host = world.host()
    cases = [world.bring_to(State.RUNNING, host) for _ in range(2)]
    messages = tuple(Message(time=world.store.now(), level=20, text=str(n)) for n in range(21))

    def notes(left_out, messages=()):
        said = {"who": "worker", "messages": messages, "left_out": left_out}
        return [ProgressUpdate(instance=c.instance, attempt=c.number, **said) for c in cases]

    def left_out():
        """How many messages were, by Instance, in their order."""
        records = LogRecord.objects.filter(kind=Kind.LEFT_OUT).order_by("instance")
        return list(records.values_list("detail", flat=True))

    longer = notes(11, messages[-1:])
    assert world.store.records.note(notes(10, messages[:20]), daemon=host.uuid) == []
    own = LogRecord.objects.of_instance(cases[0].instance).filter(kind=Kind.MESSAGE)
    with impatient(world, lock(own)):
        delivered = world.store.records.deliver(longer, daemon=host.uuid)
        assert (delivered.locked, delivered.refused) == ({cases[0].instance}, [])
        assert left_out() == ["10", "11"]
    assert world.store.records.deliver(longer[:1], daemon=host.uuid).locked == frozenset()
    assert left_out() == ["11", "11"]


def lock_node(key):
    """Lock a node as who adds an edge behind it does."""
    execute("SELECT FROM atp_node WHERE instance_id = %s FOR KEY SHARE", key)


def test_a_node_that_nobody_holds_and_somebody_has_locked(world):
    """G9: a scan mends its neighbour; and that node when the lock is gone."""
    keys = submit(world, "ab", [])
    assert {case.instance for case in world.host().claim()} == set(keys.values())
    Task.objects.update(daemon=None)

    def mended():
        return set(world.store.upkeep.mend_tasks(list(keys.values()), world.store.now(), "tests"))

    with impatient(world, lambda: lock_node(keys["a"])):
        assert mended() == {keys["b"]}
    assert mended() == {keys["a"]}


@pytest.mark.parametrize(("limit", "is_told"), [(1, True), (1, False), (5, True)])
def test_the_first_tasks_of_a_lane(world, limit, is_told):
    """G9: however few are claimed, those behind are, of lower priorities and of other lanes."""
    locked = [world.enqueue(priority=priority)[0] for priority in range(100, 80, -1)]
    locked += world.enqueue(collection="a")
    free = [world.enqueue(collection=collection)[0] for collection in ("", "a", "b")]
    host = world.host()
    if is_told:
        # It knows the lanes from an earlier claim.
        host.move(host.claim(1)[0], Event.RELEASE)
    found = []
    with open_transaction(lock(Task.objects.filter(pk__in=locked))):
        while cases := host.claim(limit):
            assert len(cases) <= limit
            found += [case.instance for case in cases]
    assert sorted(found) == free
    assert {case.instance for case in host.claim(30)} == set(locked)


@pytest.mark.parametrize("own", [{"max_running": 3}, {"max_running_per_collection": 3}])
def test_the_first_tasks_of_a_limited_type(world, own):
    """G9: its limit is kept nevertheless."""
    locked = [world.enqueue(priority=priority)[0] for priority in range(100, 80, -1)]
    free = [world.enqueue()[0] for _ in range(4)]
    world.store.control.limit(scope(ONE), **own)
    host = world.host()
    with open_transaction(lock(Task.objects.filter(pk__in=locked))):
        assert claimed(host, 5, 1) == free[:3]


@pytest.mark.parametrize("own", ["each lane", "lanes"])
def test_the_first_lanes_of_a_type_whose_lanes_are_limited(world, own):
    """G9: those behind give as many as their limits allow."""
    keys = {lane: world.enqueue(collection=lane)[0] for lane in "abcde"}
    if own == "each lane":
        world.store.control.limit(scope(ONE), max_running_per_collection=1)
    else:
        for lane in keys:
            world.store.control.limit(scope(ONE, lane), max_running=1)
    world.enqueue(3, collection="e")
    host = world.host()
    with open_transaction(lock(Task.objects.filter(collection__in=["a", "b", "c"]))):
        assert sorted(claimed(host, 5, 1)) == [keys["d"], keys["e"]]


def test_lanes_behind_locked_ones_take_turns(world):
    """G9: none is passed over for ever."""
    names = [f"{number:02}" for number in range(40)]
    for name in names:
        world.enqueue(12, collection=name)
    host, seen = world.host(), set()
    with open_transaction(lock(Task.objects.filter(collection__in=names[:8]))):
        for _ in range(10):
            cases = host.claim(8)
            assert len(cases) == 8
            seen |= {case.collection for case in cases}
    assert seen == set(names[8:])


def test_the_order_of_a_lane_behind_another_that_is_locked(world):
    """G9: what a further look finds comes after what the first one took from that lane."""
    [a] = world.enqueue(collection="a")
    [b] = world.enqueue(collection="b")
    [first] = world.enqueue(collection="x", priority=5)
    [second] = world.enqueue(collection="x", priority=4)
    host = world.host()
    with open_transaction(lock(Task.objects.filter(pk=b))):
        assert [case.instance for case in host.claim(3)] == [a, first, second]


# Limits that somebody keeps locked: their Types wait, and nothing else does


@pytest.fixture
def limited(world):
    """A queue with a limited Type, a lane of it that has a limit too, and another Type."""
    world.enqueue(5)
    world.enqueue(5, type=TWO)
    world.store.control.limit(scope(ONE), max_running=4, per_second=0.001, burst=4, rate="1/1000s")
    world.store.control.limit(scope(ONE, "lane"), max_running=4)
    return world


def test_a_claim_leaves_out_what_somebody_keeps_locked(limited):
    """G9: and takes it when the lock is gone."""
    host = limited.host()
    with transaction.atomic():
        limited.store.control.limit(scope(ONE), weight=2.0)
        assert lanes(Thread(host.claim).result()) == {(TWO, ""): 5}
        assert Thread(host.claim).result() == []
    wait_for(lambda: lanes(host.claim()).get((ONE, ""), 0) >= 3)


def test_who_finds_one_limit_locked_keeps_no_other(limited):
    """Or two that want both would keep them from each other."""
    host = limited.host()
    with transaction.atomic():
        Limit.objects.select_for_update().get(collection="lane")
        Thread(host.claim).result()
        assert Limit.objects.select_for_update(nowait=True).get(collection=None)


def test_giving_tokens_back_waits_for_nobody(limited):
    """They are spent then, which is no more than a start that comes late."""
    host = limited.host()
    wait_for(lambda: len(host.claim()) > 0 or Task.objects.claimed().count() == 9)
    with transaction.atomic():
        Limit.objects.select_for_update().get(collection=None)
        Thread(limited.store.limits.give_back, [(ONE, "")]).result()
    limited.store.limits.give_back([(ONE, "")])
    assert Limit.objects.get(collection=None).tokens == pytest.approx(1, abs=0.1)


# Nodes of graphs


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

    with impatient(world, add):
        delivered = world.store.records.deliver(moves, daemon=host.uuid)
        assert delivered.locked == {keys["a"]}
        assert world.state(plain[0]) == State.FINISHED
        assert host.claim() == []
    assert world.store.records.deliver(moves[:1], daemon=host.uuid).locked == frozenset()
    assert world.state(keys["a"]) == State.FINISHED
    assert world.task(keys["x"]).waits == 1


def test_a_cancel_in_a_transaction_and_an_end_lock_in_one_order(world, monkeypatch):
    """Else one of them would be the victim of a deadlock."""
    chain(world, "held", "waiting")
    host = world.host()
    case = running(host)
    cancel, begun = world.store.control.cancel, threading.Event()

    def beside_an_end(keys, **more):
        done = cancel(keys, **more)
        if not begun.is_set():
            begun.set()
            wait_for(is_anybody_waiting_for_a_lock, what="the end that waits for the cancel")
        return done

    def conclude():
        assert begun.wait(DEADLINE)
        world.store.records.conclude(move_of(case, Event.FINISH))

    monkeypatch.setattr(world.store.control, "cancel", beside_an_end)
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

    with impatient(world, lock(Task.objects.filter(pk=second))):
        assert world.store.records.deliver(moves, daemon=host.uuid).locked == {first}
        assert world.state(other) == State.FINISHED
        assert world.task(last).waits == 0
    assert world.store.records.deliver(moves[:1], daemon=host.uuid).refused == []
    assert world.task(second).waits == 0


def test_what_waits_and_is_locked_is_failed_later(world):
    """G17: a failure that cannot reach what waits for it is worked off by the job."""
    first, second = chain(world, "a", "b")
    host = world.host()
    case = running(host)
    with open_transaction(lambda: lock_node(second)):
        host.move(case, Event.FAIL, reason="ERROR")
        assert world.state(second) == State.ACCEPTED
        assert world.store.graph_ends.fail_dependants() == 0
    assert world.store.graph_ends.fail_dependants() == 1
    assert world.state(second) == State.FAILED
    assert world.get(first).reason == "ERROR"


def test_who_has_locked_what_waits_for_any_end_holds_up_no_job(world):
    """G11: what fails late nodes, or takes them from a lost daemon, steps over that one."""
    keys = submit(world, "abx", [("a", "x", "ended")])
    Task.objects.exclude(pk=keys["x"]).update(start_before=world.store.now())
    with impatient(world, lock(Task.objects.filter(pk=keys["x"]))):
        assert world.store.claims.miss() == 1
        assert world.state(keys["b"]) == State.FAILED
    assert world.store.claims.miss() == 1
    assert world.task(keys["x"]).waits == 0


def test_ends_in_any_order_wait_for_each_other_in_no_circle(world):
    """Two daemons end many parents of the same children, each in an order of its own."""
    parents, children = ([f"{kind}{number}" for number in range(20)] for kind in "pc")
    submit(world, parents + children, product(parents, children))
    first, second = world.host(), world.host()
    ends = finished(world, first.claim(10))
    others = finished(world, reversed(second.claim(10)))
    assert at_once(lambda: first.record(*ends), lambda: second.record(*others)) == [[], []]
    assert list(Task.objects.values_list("waits", flat=True)) == [0] * 20


def test_a_locked_type_of_an_undo_holds_up_that_graph_alone(world):
    """G9: the others end, and it does once the lock is gone."""
    submit(world, "a", [])
    keys = submit(world, "cd", [("c", "d")], undos="c", types={"c": TWO, "d": TWO})
    host = world.host()
    assert world.store.records.record(finished(world, host.claim()), daemon=host.uuid) == []
    world.store.control.cancel([keys["d"]])
    with impatient(world, lock(Type.objects.filter(identifier=ONE))):
        assert world.store.graph_ends.end() == (1, 0)
    world.store.graph_ends.undo()
    assert Node.objects.filter(undoes=keys["c"]).exists()


def test_failed_nodes_before_one_that_is_locked_keep_no_others_waiting(world, monkeypatch):
    """Their dependant is locked: what other graphs wait for is failed all the same."""
    monkeypatch.setattr(graph_ends, "ROWS", 3)
    monkeypatch.setattr(graph_ends, "MOST", 0)
    parts = submit(world, [*"abc", "merge"], [(part, "merge") for part in "abc"])
    other = chain(world, "x", "y")
    roots = [parts[part] for part in "abc"] + other[:1]
    with open_transaction(lock(Task.objects.filter(pk=parts["merge"]))):
        world.store.control.cancel(roots)
        assert Failing.objects.count() == 4
        counts = [world.store.graph_ends.fail_dependants(limit=500) for _ in range(2)]
        assert sum(counts) == 1
        assert world.state(other[1]) == State.FAILED
    world.store.graph_ends.fail_dependants(limit=500)
    assert world.state(parts["merge"]) == State.FAILED
