"""The store for PostgreSQL: telling and listening. A hint that something waits (G15)."""

import contextlib
import os
import resource
import time

import pytest
from django.db import connection, transaction

from atp.exceptions import DuplicateIdentifier
from atp.models import Instance
from atp.states import Event, Reason, State

from ..helpers import DEADLINE, Thread, wait_for
from .broken import execute
from .internals import postgresql_listener as listener
from .world import ONE, World, only_postgresql, registration

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]
# What is not to come is waited for so long; what is to come is waited for up to DEADLINE.
SHORTLY = 0.1


@pytest.fixture
def idle(world):
    """A daemon that has said that it has nothing to do."""
    world.store.types.register([registration(ONE)])
    host = world.host()
    world.store.daemons.renew(host.uuid, lease=30, idle=True)
    return host


@pytest.fixture
def ear(world, idle):
    """A listener that has said its first yes."""
    with contextlib.closing(world.store.listener()) as ear:
        assert ear.wait(0)
        yield ear


def notices(ear):
    """How many notices have come by now."""
    with ear._wrapper.cursor() as cursor:
        cursor.execute("SELECT 1")  # what was committed before is here with the answer
    count = len(ear._notices)
    ear._notices.clear()
    return count


def backend(ear):
    return ear._wrapper.connection.info.backend_pid


def end(pid):
    execute("SELECT pg_terminate_backend(%s, 10000)", pid)


def test_each_commit_tells_once_and_ends_a_wait(world, ear):
    for count in (1, 3):
        world.enqueue(count)
        assert notices(ear) == 1
    waiting = Thread(ear.wait, DEADLINE)
    world.enqueue()
    assert waiting.result() is True
    # Any session may notify of anything.
    execute("NOTIFY atp_wake, 'x'")
    assert ear.wait(DEADLINE)
    assert ear.handed() == []


def rolled_back(world):
    with transaction.atomic():
        world.enqueue()
        transaction.set_rollback(True)


def released(world):
    with transaction.atomic():
        world.enqueue()


def nested(world):
    with transaction.atomic():
        released(world)
        transaction.set_rollback(True)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([rolled_back], 0),
        ([nested, rolled_back], 0),
        ([released, rolled_back], 1),
        ([released, World.enqueue, rolled_back, released], 1),
    ],
)
def test_savepoints(world, ear, steps, told):
    """What is left of a transaction is told, once, and only if something is left (G7)."""
    with transaction.atomic():
        for step in steps:
            step(world)
        assert notices(ear) == 0
    assert notices(ear) == told
    assert Instance.objects.exists() == bool(told)


def test_where_nobody_is_idle_nobody_is_told(world, idle, ear):
    """A notice costs the server a lock."""
    for is_idle in (False, True):
        world.store.daemons.renew(idle.uuid, lease=30, idle=is_idle)
        if is_idle:
            idle.lose_lease()
        world.enqueue()
        released(world)
        assert notices(ear) == 0


def test_an_identifier_that_is_taken(world, ear):
    world.enqueue(identifier="a")
    assert notices(ear) == 1
    with pytest.raises(DuplicateIdentifier):
        world.enqueue(identifier="a")
    world.enqueue(identifier="a", existing="return")
    world.enqueue(identifier="a", existing="redrive")
    assert notices(ear) == 0
    assert Instance.objects.count() == 1


def test_what_comes_back_to_the_queue_is_told_once(world, idle, ear):
    """Put back, redriven by its identifier or by an operator, or taken from a lost daemon."""
    [key] = world.enqueue(identifier="a")
    again = {
        Event.RELEASE: None,
        Event.RETRY: None,
        Event.FAIL: lambda: world.as_anyone(Event.REDRIVE, key),
        "": lambda: world.enqueue(identifier="a", existing="redrive"),
    }
    for event, redrive in again.items():
        [case] = idle.claim()
        idle.move(case, Event.START)
        notices(ear)
        idle.move(case, event or Event.FAIL, reason=Reason.ERROR if redrive else "")
        if redrive is not None:
            notices(ear)
            redrive()
        assert world.state(key) == State.ACCEPTED
        assert notices(ear) == 1
    lost = world.host()
    world.enqueue(3)
    lost.claim()
    lost.lose_lease()
    notices(ear)
    world.store.daemons.sweep(daemon=idle.uuid)
    assert notices(ear) == 1


def test_a_connection_that_is_ended_is_replaced(world, ear, monkeypatch):
    """What was told meanwhile may have been missed, so the next wait says yes (G11)."""
    monkeypatch.setattr(listener, "PAUSE", 0.0)
    before = backend(ear)
    end(before)
    world.enqueue()
    wait_for(lambda: ear.wait(SHORTLY), what="a yes")
    assert backend(ear) != before
    ear._wrapper.inc_thread_sharing()
    waiting = Thread(ear.wait, DEADLINE)
    end(backend(ear))
    assert waiting.result() is False
    wait_for(lambda: ear.wait(0), what="a yes")
    world.enqueue()
    assert ear.wait(DEADLINE)


def test_where_it_cannot_connect_it_waits_and_tries_again(world, ear, monkeypatch):
    """It neither raises nor spins (G11)."""
    monkeypatch.setattr(listener, "PAUSE", SHORTLY)
    ear.close()
    good = connection.settings_dict["NAME"]
    monkeypatch.setitem(connection.settings_dict, "NAME", "there is no such database")
    before = time.monotonic()
    assert not ear.wait(DEADLINE)
    assert time.monotonic() - before >= SHORTLY
    monkeypatch.setitem(connection.settings_dict, "NAME", good)
    assert ear.wait(0)


def test_closing_leaves_no_connection(world, idle):
    ear = world.store.listener()
    ear.wait(0)
    pid = backend(ear)
    ear.close()
    ear.close()

    def is_gone():
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid])
            return cursor.rowcount == 0

    wait_for(is_gone)


def test_descriptors_of_any_number(world, idle):
    """A daemon with hundreds of workers has more than 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("no more than 1024 descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with contextlib.closing(world.store.listener()) as ear:
            assert ear.wait(0)
            first = backend(ear)
            assert ear._wrapper.connection.fileno() > 1024
            assert not ear.wait(0)
            world.enqueue()
            assert ear.wait(DEADLINE)
            assert backend(ear) == first
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
