"""What the testing kit asks of a store: claiming one Task, letting time pass, being a guest."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.exceptions import LeaseLost, UnknownSchedule
from atp.models import Instance, Task
from atp.states import State

from .world import scope

HOUR = timedelta(hours=1)


@pytest.fixture
def host(world):
    return world.host()


def test_one_task_is_taken_past_everything(world, host):
    first, second = world.enqueue(2, due=world.store.now() + HOUR)
    world.store.shut(scope(), "hold")
    taken = world.store.take(host.uuid, second)
    assert (taken.instance, taken.attempt) == (second, 1)
    assert (world.state(first), world.state(second)) == (State.ACCEPTED, State.SCHEDULED)
    assert host.holds() == {second}


def test_what_does_not_wait_is_not_taken(world, host):
    [key] = world.enqueue()
    assert world.store.take(host.uuid, key)
    assert world.store.take(host.uuid, key) is None


def test_a_daemon_without_a_lease_takes_nothing(world, host):
    [key] = world.enqueue()
    world.store.leave(host.uuid)
    with pytest.raises(LeaseLost):
        world.store.take(host.uuid, key)


def test_time_passes_for_what_waits(world, host):
    now = world.store.now()
    dated, other = world.enqueue(2, due=now + HOUR, start_before=now + 5 * HOUR)
    world.store.let_pass(2 * HOUR)
    assert Task.objects.get(pk=dated).due_at == now - HOUR
    assert Task.objects.get(pk=dated).start_before == now + 3 * HOUR
    assert Instance.objects.get(pk=dated).start_before == now + 3 * HOUR
    assert {case.instance for case in host.claim()} == {dated, other}


def test_time_passes_for_some(world):
    now = world.store.now()
    one, other = world.enqueue(2, due=now + HOUR)
    world.store.let_pass(2 * HOUR, instances=(one,))
    assert Task.objects.get(pk=one).due_at == now - HOUR
    assert Task.objects.get(pk=other).due_at == now + HOUR


def test_no_slots_of_a_schedule_that_is_not_there(world):
    now = world.store.now()
    with pytest.raises(UnknownSchedule):
        world.store.plan_slots("none", now, now + HOUR)


def test_a_guest_leaves_no_trace(world, host):
    """PostgreSQL: a daemon has its statements planned in its own way."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no such settings")

    def shown():
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            return cursor.fetchone()[0]

    world.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = on")
    with transaction.atomic():
        with world.store.as_guest():
            assert host.claim()
            assert shown() == "off"
        assert shown() == "on"
    assert shown() == "on"
