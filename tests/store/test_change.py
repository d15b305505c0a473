"""The store contract: change, of what waits."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from atp.exceptions import InvalidOption
from atp.models import Task
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store.values import Changes
from atp.words import log_messages

from ..helpers import Thread, at_once, wait_for
from ..nonsense import tells
from .test_races import needs_row_locks, somebody_waits_for_a_lock
from .world import SECOND

HOUR = timedelta(hours=1)


def change(world, *keys, who="ann", **what):
    return world.store.change(keys, Changes(**what), who=who)


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
    assert tells(last.message, log_messages.changed(said, last.time))


def test_what_is_not_given_stays(world):
    late = world.store.now() + 5 * HOUR
    [key] = world.enqueue(priority=3, collection="a", due=late - HOUR, start_before=late)
    before = world.task(key)
    assert change(world, key, priority=4) == {key: [("priority", 3, 4)]}
    task = world.task(key)
    assert (task.collection, task.due_at, task.start_before) == ("a", before.due_at, late)
    assert change(world, key, collection="") == {key: [("collection", "a", "")]}
    assert world.get(key).priority == 4


def test_what_is_no_different_is_not_written(world):
    [key] = world.enqueue(priority=3, collection="a")
    before = world.snapshot()
    due = world.task(key).due_at
    assert change(world, key, priority=3, collection="a", due=due) == {key: []}
    assert world.snapshot() == before


def test_run_now(world):
    host = world.host()
    [key] = world.enqueue(due=world.store.now() + HOUR)
    assert host.claim() == []
    [(name, _, now)] = change(world, key, due=timedelta())[key]
    assert (name, now) == ("due", world.log(key)[-1].time)
    assert [claimed.instance for claimed in host.claim()] == [key]


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
    found = []
    for _ in range(3):
        wait_for(lambda: (case := host.claim(1)) and not found.append(case[0].instance))
    assert found == [third, second, first]


@pytest.mark.parametrize("state", sorted(set(State) - {State.ACCEPTED}))
def test_what_does_not_wait_is_left_as_it_is(world, state):
    """G6: claimed or ended, the attempt has what it began with."""
    case = world.bring_to(state, world.host())
    before = world.snapshot()
    assert change(world, case.instance, priority=9, due=timedelta()) == {}
    assert world.snapshot() == before


def test_what_waits_again_can_be_changed(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    host.move(case, Event.RETRY, delay=HOUR)
    change(world, case.instance, due=timedelta())
    assert world.log(case.instance)[-1].attempt == 1
    assert len(host.claim()) == 1


def test_a_redrive_keeps_what_was_changed(world):
    host = world.host()
    [key] = world.enqueue()
    change(world, key, priority=7, collection="b")
    [case] = host.claim()
    assert (case.priority, case.collection) == (7, "b")
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR)
    world.as_anyone(Event.REDRIVE, key)
    assert (world.task(key).priority, world.task(key).collection) == (7, "b")


def test_many_at_once_those_that_wait(world):
    host = world.host()
    claimed = world.bring_to(State.RUNNING, host).instance
    keys = world.enqueue(3)
    said = change(world, *keys, claimed, 2**40, priority=9)
    assert sorted(said) == keys
    assert {world.get(key).priority for key in keys} == {9}
    assert world.get(claimed).priority == 0


def test_never_due_after_its_start_before(world):
    """G13: with nothing written, of the others neither."""
    plain, limited = world.enqueue() + world.enqueue(start_before=world.store.now() + HOUR)
    before = world.snapshot()
    for what in ({"due": 2 * HOUR}, {"postpone": HOUR}):
        with pytest.raises(InvalidOption, match="must be earlier than start_before"):
            change(world, plain, limited, **what)
    assert world.snapshot() == before
    assert change(world, limited, priority=5)[limited]


def test_beyond_the_calendar(world):
    [key] = world.enqueue(due=datetime(9998, 1, 1, tzinfo=UTC))
    before = world.snapshot()
    with pytest.raises(InvalidOption, match="calendar"):
        change(world, key, postpone=timedelta(days=3650))
    assert world.snapshot() == before


@pytest.mark.django_db(transaction=True)
def test_a_claim_and_a_change_do_not_meet(world):
    """G6: one of them wins, and the other is told; the attempt has what the log says."""
    for _ in range(10):
        [key] = world.enqueue()
        host = world.host()
        claimed, said = at_once(host.claim, lambda k=key: change(world, k, collection="x"))
        if claimed and said:
            assert claimed[0].collection == "x"
        elif claimed:
            assert (claimed[0].collection, world.get(key).collection) == ("", "")
        else:
            assert said
            claimed = host.claim()
        assert world.task(key).collection == world.get(key).collection == claimed[0].collection
        host.move(claimed[0], Event.START, Event.FINISH)


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_a_change_that_waits_for_a_claim_is_told(world):
    [key] = world.enqueue()
    host = world.host()
    with transaction.atomic():
        assert host.claim()
        late = Thread(lambda: change(world, key, priority=9))
        wait_for(somebody_waits_for_a_lock, what="a change that waits for the claim")
    assert late.result() == {}
    assert world.get(key).priority == 0


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_a_claim_does_not_wait_for_a_change(world):
    first, second = world.enqueue(2)
    host = world.host()
    with transaction.atomic():
        change(world, first, priority=9)
        assert [each.instance for each in Thread(host.claim).result()] == [second]
    assert [each.priority for each in host.claim()] == [9]


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
            assert tells(record.message, log_messages.changed([step], record.time))
    assert not connection.in_atomic_block
