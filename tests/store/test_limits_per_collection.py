"""``max_running_per_collection``: the limit of each lane of a Type, declared by its code."""

from collections import Counter
from datetime import timedelta

import pytest

from atp.models import Limit, Task
from atp.states import Event

from ..helpers import DEADLINE, at_once, wait_for
from .world import ONE, TWO, scope

pytestmark = pytest.mark.each_database


@pytest.fixture
def each(world):
    """Declare how many of each collection of ONE may run."""

    def declare(count=1, **more):
        world.store.register([*_registrations()])
        world.store.declare({ONE: {"max_running_per_collection": count, **more}})

    return declare


def _registrations():
    from .world import registration

    return registration(ONE), registration(TWO)


def lanes(claimed):
    return Counter(task.collection for task in claimed)


def finish(host, *tasks):
    for task in tasks:
        host.move(task, Event.START, Event.FINISH)


def test_one_at_a_time_of_each(world, each):
    each()
    for name in ("a", "b", ""):
        world.enqueue(5, collection=name)
    host = world.host()
    assert lanes(host.claim(20, [ONE])) == {"a": 1, "b": 1, "": 1}
    assert host.claim(20, [ONE]) == []


@pytest.mark.parametrize("count", [2, 3])
def test_several_of_each(world, each, count):
    each(count)
    for name in ("a", "b"):
        world.enqueue(5, collection=name)
    host = world.host()
    found = Counter()
    for _ in range(3):
        found += lanes(host.claim(20, [ONE]))
    assert found == {"a": count, "b": count}


def test_another_comes_when_one_has_ended(world, each):
    each()
    world.enqueue(3, collection="a")
    host = world.host()
    for _ in range(3):
        [task] = host.claim(20, [ONE])
        finish(host, task)
    assert host.claim(20, [ONE]) == []


def test_only_for_workers_that_are_free(world, each):
    """What is claimed ahead would keep a lane from daemons that can run it."""
    each()
    for number in range(10):
        world.enqueue(collection=str(number))
    host = world.host()
    assert len(host.claim(20, [ONE], free=3)) == 3
    assert host.claim(20, [ONE], free=0) == []


def test_full_lanes_do_not_hide_others(world, each):
    each()
    world.enqueue(50, collection="a")
    world.enqueue(50, collection="b")
    world.enqueue(collection="z")
    host = world.host()
    assert lanes(host.claim(2, [ONE])) == {"a": 1, "b": 1}
    assert lanes(host.claim(2, [ONE])) == {"z": 1}


def test_lanes_take_turns(world, each):
    """G9: each of many comes before one comes again."""
    each()
    for number in range(9):
        world.enqueue(3, collection=f"lane {number}")
    host = world.host()
    found = Counter()
    for _ in range(9):
        [task] = host.claim(1, [ONE])
        found[task.collection] += 1
        finish(host, task)
    assert set(found.values()) == {1}


def test_what_is_due_later_is_stepped_over(world, each):
    each()
    later = world.store.now() + timedelta(hours=1)
    for number in range(20):
        world.enqueue(collection=f"a {number}", due=later)
    world.enqueue(collection="b")
    world.enqueue(collection="c", priority=5, due=later)
    world.enqueue(collection="c")
    assert lanes(world.host().claim(2, [ONE])) == {"b": 1, "c": 1}


def test_a_gate_of_a_lane_holds(world, each):
    each()
    world.enqueue(3, collection="a")
    world.enqueue(3, collection="b")
    world.store.shut(scope(ONE, "a"), "hold")
    assert lanes(world.host().claim(20, [ONE])) == {"b": 1}


def test_an_operators_limit_of_a_lane_goes_before(world, each):
    each()
    world.enqueue(9, collection="a")
    world.enqueue(9, collection="b")
    world.store.limit(scope(ONE, "a"), max_running=3)
    host = world.host()
    found = Counter()
    for _ in range(4):
        found += lanes(host.claim(20, [ONE]))
    assert found == {"a": 3, "b": 1}


def test_a_rate_of_a_lane_leaves_it_in_force(world, each):
    each()
    world.enqueue(9, collection="a")
    world.store.limit(scope(ONE, "a"), rate="1000/s", per_second=1000.0, burst=100)
    host = world.host()
    assert len(host.claim(20, [ONE])) == 1
    assert host.claim(20, [ONE]) == []


def test_beside_a_limit_of_the_whole_type(world, each):
    each(2, max_running=3)
    for name in ("a", "b", "c"):
        world.enqueue(5, collection=name)
    host = world.host()
    found = Counter()
    for _ in range(4):
        found += lanes(host.claim(20, [ONE]))
    assert found.total() == 3
    assert max(found.values()) <= 2


def test_other_types_are_claimed_as_ever(world, each):
    each()
    world.enqueue(9, collection="a")
    world.enqueue(9, type=TWO, collection="a")
    found = Counter(task.type for task in world.host().claim(20, [ONE, TWO]))
    assert found[TWO] == 9
    assert found[ONE] <= 1


def test_once_an_operator_has_set_something_code_declares_it_no_more(world, each):
    each()
    world.store.limit(scope(ONE), max_running_per_collection=4)
    each(2)
    assert Limit.objects.get(type__identifier=ONE).max_running_per_collection == 4


def test_there_is_no_row_for_a_lane(world, each):
    each()
    for number in range(20):
        world.enqueue(collection=str(number))
    world.host().claim(20, [ONE])
    assert Limit.objects.count() == 1


class TestOutlook:
    """A daemon is not told that work is due which it cannot claim, or it would ask on and on."""

    def test_all_that_is_due_is_full(self, world, each):
        each()
        world.enqueue(3, collection="a")
        host = world.host()
        assert world.store.outlook([ONE], daemon=host.uuid).due <= 0
        host.claim(20, [ONE])
        assert world.store.outlook([ONE], daemon=host.uuid).due is None

    def test_one_lane_is_not_full(self, world, each):
        each()
        world.enqueue(3, collection="a")
        host = world.host()
        host.claim(20, [ONE])
        world.enqueue(collection="b")
        assert world.store.outlook([ONE], daemon=host.uuid).due <= 0

    def test_something_is_due_later(self, world, each):
        each()
        world.enqueue(collection="b", due=world.store.now() + timedelta(minutes=10))
        assert 500 < world.store.outlook([ONE]).due < 700


@pytest.mark.django_db(transaction=True)
def test_never_more_than_that_under_three_claimers(world, each):
    """G3: each counts what is held at every claim of its own, and ends some again."""
    each(2)
    names = ["a", "b", "c", ""]
    for name in names:
        world.enqueue(25, collection=name)
    hosts = [world.host() for _ in range(3)]

    def work(host):
        def look():
            tasks = host.claim(4, [ONE])
            held = Task.objects.filter(daemon__isnull=False)
            counts = Counter(held.values_list("collection", flat=True))
            assert max(counts.values(), default=0) <= 2, counts
            finish(host, *tasks)
            return not Task.objects.exists()

        wait_for(look, DEADLINE)

    outcomes = at_once(*[lambda host=host: work(host) for host in hosts], timeout=3 * DEADLINE)
    assert outcomes == [None] * 3
