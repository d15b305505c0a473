"""The store contract: change, of what waits."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from atp import messages
from atp.exceptions import InvalidOption
from atp.models import Kind, Task
from atp.states import Event, State
from atp.store.facts import Changes

from ..helpers import at_once, wait_for
from ..nonsense import tells
from .world import HOUR, SECOND


def change(world, *keys, who="ann", **what):
    return world.store.control.change(keys, Changes(**what), who=who)


def test_priority_collection_and_due_time(world):
    [key] = world.enqueue(priority=3, collection="a")
    due = datetime(2100, 1, 1, tzinfo=UTC)
    said = change(world, key, priority=-5, collection="b", due=due)[key]
    task, instance = world.task(key), world.get(key)
    assert (task.priority, task.collection, task.due_at) == (-5, "b", due)
    assert (instance.priority, instance.collection) == (-5, "b")
    last = world.log(key)[-1]
    assert (last.who, last.kind, last.state) == ("ann", Kind.CHANGE, State.ACCEPTED)
    assert last.attempt == 0
    assert said == [("due", instance.created, due), ("priority", 3, -5), ("collection", "a", "b")]
    assert tells(last.message, messages.task_changed(said, last.time))


def test_what_is_no_different_or_makes_no_sense_is_not_written(world):
    """G13: of the others neither."""
    [key] = world.enqueue(priority=3, collection="a")
    [limited] = world.enqueue(start_before=world.store.now() + HOUR)
    [far] = world.enqueue(due=datetime(9998, 1, 1, tzinfo=UTC))
    before, due = world.snapshot(), world.task(key).due_at
    assert change(world, key, priority=3, collection="a", due=due) == {key: []}
    for what in ({"due": 2 * HOUR}, {"postpone": HOUR}):
        with pytest.raises(InvalidOption, match="must be earlier than start_before"):
            change(world, key, limited, **what)
    with pytest.raises(InvalidOption, match="calendar"):
        change(world, far, postpone=timedelta(days=3650))
    assert world.snapshot() == before
    assert change(world, limited, priority=5)[limited]


@pytest.mark.parametrize("due", [-HOUR, HOUR])
def test_postponed_by_so_much(world, due):
    now = world.store.now()
    [key] = world.enqueue(due=now + due)
    change(world, key, postpone=2 * HOUR)
    expected = max(now, now + due) + 2 * HOUR
    assert abs(world.task(key).due_at - expected) < 10 * SECOND
    assert world.host().claim() == []


def test_a_change_decides_about_the_order(world):
    """G8."""
    first, second, third = world.enqueue(3)
    change(world, third, priority=5)
    change(world, first, due=timedelta(seconds=-0.001))
    change(world, first, postpone=timedelta(microseconds=1))
    host = world.host()
    found = [wait_for(lambda: host.claim(1)) for _ in range(3)]
    assert [case.instance for [case] in found] == [third, second, first]


def test_what_does_not_wait_is_left_as_it_is(world, host):
    """G6: of many, those that wait change."""
    others = [world.bring_to(state, host).instance for state in set(State) - {State.ACCEPTED}]
    keys = world.enqueue(3)
    assert sorted(change(world, *others, 2**40, *keys, priority=9)) == keys
    assert {world.get(key).priority for key in keys} == {9}
    assert {world.get(key).priority for key in others} == {0}


@pytest.mark.django_db(transaction=True)
def test_a_claim_and_a_change_do_not_meet(world):
    """G6: one of them wins, and the other is told; the attempt has what the log says."""
    for _ in range(5):
        [key] = world.enqueue()
        host = world.host()
        claimed, said = at_once(host.claim, lambda k=key: change(world, k, collection="x"))
        assert claimed or said
        [case] = claimed or host.claim()
        assert case.collection == ("x" if said else "")
        assert world.task(key).collection == world.get(key).collection == case.collection
        host.move(case, Event.START, Event.FINISH)


@pytest.mark.django_db(transaction=True)
def test_many_changes_at_once(world):
    """What is logged is what happened: each begins where the last one ended."""
    keys = world.enqueue(5)
    changes = [lambda p=p: change(world, *keys[:: (-1) ** p], priority=p) for p in (1, 2, 3, 4)]
    said = at_once(*changes)
    for key in keys:
        steps = {was: to for each in said for _, was, to in each[key]}
        priority, made = 0, []
        while priority in steps:
            made.append(("priority", priority, steps[priority]))
            priority = steps[priority]
        assert (len(made), priority) == (4, Task.objects.get(pk=key).priority)
        for record, step in zip(world.log(key)[1:], made, strict=True):
            assert tells(record.message, messages.task_changed([step], record.time))
    assert not connection.in_atomic_block
