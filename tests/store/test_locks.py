"""Locks that others hold on what a daemon writes to: nobody else waits for them (G9, G11)."""

import pytest
from django.db import connection

from atp.models import LogRecord, Task
from atp.rows.log import Kind
from atp.states import Event, State
from atp.store.values import Message, Note

from ..helpers import open_transaction
from .graphs import submit
from .world import ONE, scope

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor == 'sqlite'", reason="SQLite has one writer: nothing waits for a row"
    ),
]


@pytest.fixture
def impatient(world):
    """A world whose store waits for a lock only for a moment, as that of a daemon does."""
    world.store.limit_waiting(0.1)
    yield world
    world.store.limit_waiting(0)


def lock(rows):
    """Lock rows as whoever deletes them does."""
    return lambda: list(rows.select_for_update())


def test_a_log_that_is_to_be_shortened(impatient, settings):
    """G11: the notes of that attempt wait; those of its neighbour are written."""
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    world, host = impatient, impatient.host()
    cases = [world.bring_to(State.RUNNING, host) for _ in range(2)]
    messages = tuple(Message(time=world.store.now(), level=20, text=str(n)) for n in range(21))

    def notes(left_out, messages=()):
        said = {"who": "worker", "messages": messages, "left_out": left_out}
        return [Note(instance=c.instance, attempt=c.attempt, **said) for c in cases]

    longer = notes(11, messages[-1:])
    assert world.store.note(notes(10, messages[:20]), daemon=host.uuid) == []
    own = LogRecord.objects.of_instance(cases[0].instance).filter(kind=Kind.MESSAGE)
    with open_transaction(lock(own)):
        delivered = world.store.deliver(longer, daemon=host.uuid)
        assert (delivered.locked, delivered.refused) == ({cases[0].instance}, [])
        assert shortened() == {cases[0].instance: "10", cases[1].instance: "11"}
    assert world.store.deliver(longer[:1], daemon=host.uuid).locked == frozenset()
    assert set(shortened().values()) == {"11"}


def shortened():
    """Return how many messages were left out, by Instance."""
    left = LogRecord.objects.filter(kind=Kind.LEFT_OUT)
    return dict(left.values_list("instance", "detail"))


def test_a_node_that_nobody_holds_and_somebody_has_locked(impatient):
    """G9: a scan mends its neighbour; and that node when the lock is gone."""
    world, host = impatient, impatient.host()
    keys = submit(world, "ab", [])
    assert {case.instance for case in host.claim()} == set(keys.values())
    Task.objects.update(daemon=None)

    def mended():
        return set(world.store.mend_tasks(list(keys.values()), world.store.now(), "tests"))

    def lock_node():
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM atp_node WHERE instance_id = %s FOR KEY SHARE", [keys["a"]])

    with open_transaction(lock_node):
        assert mended() == {keys["b"]}
    assert mended() == {keys["a"]}


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("is_told", [True, False])
def test_the_first_tasks_of_a_lane(world, limit, is_told):
    """G9: however few are claimed, those behind are, of lower priorities and of other lanes."""
    locked = [world.enqueue(priority=priority)[0] for priority in range(100, 80, -1)]
    locked += world.enqueue(collection="a")
    free = [world.enqueue(collection=collection)[0] for collection in ("", "a", "b")]
    host = world.host()
    if is_told:
        # It knows the lanes from an earlier claim.
        host.move(host.claim(1)[0], Event.RELEASE)
    claimed = []
    with open_transaction(lock(Task.objects.filter(pk__in=locked))):
        while cases := host.claim(limit):
            assert len(cases) <= limit
            claimed += [case.instance for case in cases]
    assert sorted(claimed) == free
    assert {case.instance for case in host.claim(30)} == set(locked)


@pytest.mark.parametrize("own", [{"max_running": 3}, {"max_running_per_collection": 3}])
def test_the_first_tasks_of_a_limited_type(world, own):
    """G9: its limit is kept nevertheless."""
    locked = [world.enqueue(priority=priority)[0] for priority in range(100, 80, -1)]
    free = [world.enqueue()[0] for _ in range(4)]
    world.store.limit(scope(ONE), **own)
    host = world.host()
    with open_transaction(lock(Task.objects.filter(pk__in=locked))):
        claimed = [case.instance for _ in range(5) for case in host.claim(1)]
        assert claimed == free[:3]


@pytest.mark.parametrize("own", ["each lane", "lanes"])
def test_the_first_lanes_of_a_type_whose_lanes_are_limited(world, own):
    """G9: those behind give as many as their limits allow."""
    lanes = ["a", "b", "c", "d", "e"]
    keys = {lane: world.enqueue(collection=lane)[0] for lane in lanes}
    if own == "each lane":
        world.store.limit(scope(ONE), max_running_per_collection=1)
    else:
        for lane in lanes:
            world.store.limit(scope(ONE, lane), max_running=1)
    world.enqueue(3, collection="e")
    host = world.host()
    with open_transaction(lock(Task.objects.filter(collection__in=["a", "b", "c"]))):
        claimed = [case.instance for _ in range(5) for case in host.claim(1)]
        assert sorted(claimed) == [keys["d"], keys["e"]]


@pytest.mark.parametrize("limit", [4, 8])
def test_lanes_behind_locked_ones_take_turns(world, limit):
    """G9: none is passed over for ever."""
    for number in range(40):
        world.enqueue(12, collection=f"{number:02}")
    locked = [f"{number:02}" for number in range(limit)]
    host, seen = world.host(), set()
    with open_transaction(lock(Task.objects.filter(collection__in=locked))):
        for _ in range(80 // limit):
            cases = host.claim(limit)
            assert len(cases) == limit
            seen |= {world.get(case.instance).collection for case in cases}
    assert seen == {f"{number:02}" for number in range(limit, 40)}


def test_the_order_of_a_lane_behind_another_that_is_locked(world):
    """G9: what a further look finds comes after what the first one took from that lane."""
    [a] = world.enqueue(collection="a")
    [b] = world.enqueue(collection="b")
    [first] = world.enqueue(collection="x", priority=5)
    [second] = world.enqueue(collection="x", priority=4)
    host = world.host()
    with open_transaction(lock(Task.objects.filter(pk=b))):
        assert [case.instance for case in host.claim(3)] == [a, first, second]
