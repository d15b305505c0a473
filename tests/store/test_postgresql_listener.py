"""The store for PostgreSQL: telling and listening. A hint that something waits (G15)."""

import contextlib
import os
import resource
import time

import pytest
from django.db import connection, transaction

from atp.conf import settings
from atp.daemon.system.database import shut_down
from atp.exceptions import DuplicateIdentifier
from atp.models import Daemon, Instance
from atp.states import Event, Reason, State
from atp.store.postgresql import PostgreSQLStore, listener
from atp.store.values import Move

from ..helpers import DEADLINE, Thread, wait_for
from .world import ONE, World, registration

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
    pytest.mark.django_db(transaction=True),
]
# What is not to come is waited for so long; what is to come is waited for up to DEADLINE.
SHORTLY = 0.1


@pytest.fixture
def world(transactional_db, tmp_path):
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        world.store.register([registration(ONE)])
        yield world


@pytest.fixture
def idle(world):
    """A daemon that has said that it has nothing to do."""
    host = world.host()
    world.store.renew(host.uuid, lease=30, idle=True)
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
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


# When a notice is sent


@pytest.mark.parametrize("count", [1, 3])
def test_each_commit_tells_once(world, ear, count):
    world.enqueue(count)
    assert notices(ear) == 1


def test_a_notice_ends_a_wait(world, ear):
    waiting = Thread(ear.wait, DEADLINE)
    world.enqueue()
    assert waiting.result() is True


@pytest.mark.parametrize("count", [1, 3])
def test_a_transaction_tells_once_when_it_commits(world, ear, count):
    with transaction.atomic():
        for _ in range(3):
            world.enqueue(count)
        assert notices(ear) == 0
    assert notices(ear) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_rolled_back_is_not_told(world, ear, count):
    """(G7)"""
    with transaction.atomic():
        world.enqueue(count)
        transaction.set_rollback(True)
    assert notices(ear) == 0
    assert not ear.wait(SHORTLY)


def rolled_back(world):
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        world.enqueue()
        raise ZeroDivisionError


def released(world):
    with transaction.atomic():
        world.enqueue()


def nested(world):
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        released(world)
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([rolled_back], 0),
        ([nested], 0),
        ([nested, rolled_back], 0),
        ([released], 1),
        ([rolled_back, released], 1),
        ([released, rolled_back], 1),
        ([nested, World.enqueue], 1),
        ([World.enqueue, nested], 1),
        ([released, World.enqueue, rolled_back, released], 1),
    ],
)
def test_savepoints(world, ear, steps, told):
    """What is left of a transaction is told, once, and only if something is left (G7)."""
    with transaction.atomic():
        for step in steps:
            step(world)
    assert notices(ear) == told
    assert Instance.objects.exists() == bool(told)


def test_a_call_after_commit_that_fails_keeps_nothing_from_being_enqueued(world, ear):
    def fail():
        raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        world.enqueue()
        transaction.on_commit(fail)
    assert Instance.objects.count() == 1
    assert notices(ear) == 1


# To whom


@pytest.mark.parametrize("why", ["busy", "over", "none"])
def test_where_nobody_is_idle_nobody_is_told(world, idle, ear, why):
    """A notice costs the server a lock."""
    if why == "busy":
        world.store.renew(idle.uuid, lease=30, idle=False)
    elif why == "over":
        idle.lose_lease()
    else:
        Daemon.objects.all().delete()
    world.enqueue()
    with transaction.atomic():
        world.enqueue()
    assert notices(ear) == 0


# Of what


def test_an_identifier_that_is_taken(world, ear):
    world.enqueue(identifier="a")
    assert notices(ear) == 1
    with pytest.raises(DuplicateIdentifier):
        world.enqueue(identifier="a")
    world.enqueue(identifier="a", existing="return")
    world.enqueue(identifier="a", existing="redrive")
    assert notices(ear) == 0
    assert Instance.objects.count() == 1


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_redrive(world, idle, ear, is_inside):
    """By its identifier, or by an operator."""
    [key] = world.enqueue(identifier="a")
    for again in (
        lambda: world.enqueue(identifier="a", existing="redrive"),
        lambda: world.as_anyone(Event.REDRIVE, key),
    ):
        [case] = idle.claim()
        idle.move(case, Event.START)
        idle.move(case, Event.FAIL, reason=Reason.ERROR)
        notices(ear)
        with transaction.atomic() if is_inside else contextlib.nullcontext():
            again()
        assert world.state(key) == State.ACCEPTED
        assert notices(ear) == 1


@pytest.mark.parametrize("event", [Event.RELEASE, Event.RETRY, Event.DEFER, Event.EXPIRE])
def test_what_is_put_back(world, idle, ear, event):
    world.enqueue()
    [case] = idle.claim()
    idle.move(case, Event.START)
    notices(ear)
    idle.move(case, event)
    assert notices(ear) == 1


def test_what_a_lost_daemon_held(world, idle, ear):
    lost = world.host()
    world.enqueue(3)
    lost.claim()
    lost.lose_lease()
    notices(ear)
    world.store.sweep(daemon=idle.uuid)
    assert notices(ear) == 1


@pytest.mark.parametrize("event", [Event.START, Event.FINISH])
def test_what_ends_nothing_is_told_of(world, idle, ear, event):
    world.enqueue()
    [case] = idle.claim()
    notices(ear)
    change = Move(event=event, instance=case.instance, attempt=1, time=world.store.now(),
                    started=world.store.now() if event == Event.FINISH else None)  # fmt: skip
    assert idle.record(change) == []
    assert notices(ear) == 0


# Hearing


def test_what_came_before_the_first_wait_may_matter(world, idle):
    with contextlib.closing(world.store.listener()) as ear:
        assert ear.wait(0)
        assert not ear.wait(0)


def test_several_notices_are_one(world, ear):
    world.enqueue()
    world.enqueue()
    ear._check()  # both are here with the answer
    assert ear.wait(DEADLINE)
    assert not ear.wait(SHORTLY)


def test_a_check_of_the_link_swallows_nothing(world, ear, monkeypatch):
    monkeypatch.setattr(listener, "CHECK_EVERY", 0.0)
    world.enqueue()
    assert ear.wait(DEADLINE)
    assert not ear.wait(0)


def test_all_who_listen_hear(world, ear):
    with contextlib.closing(world.store.listener()) as other:
        other.wait(0)
        world.enqueue()
        assert ear.wait(DEADLINE)
        assert other.wait(DEADLINE)


# When the connection goes


def test_a_connection_that_is_ended_is_replaced(world, ear, monkeypatch):
    """What was told meanwhile may have been missed, so the next wait says yes (G11)."""
    monkeypatch.setattr(listener, "PAUSE", 0.0)
    before = backend(ear)
    end(before)
    world.enqueue()
    wait_for(lambda: ear.wait(SHORTLY), what="a yes")
    assert backend(ear) != before
    world.enqueue()
    assert ear.wait(DEADLINE)


def test_what_others_tell_is_no_task(world, ear):
    """Any session may notify of anything."""
    with connection.cursor() as cursor:
        cursor.execute("NOTIFY atp_wake, 'x'")
    assert ear.wait(DEADLINE)
    assert ear.handed() == []


def test_one_whose_link_is_shut_down_in_a_wait(world, monkeypatch):
    """Another thread does so if the check of the link takes too long."""
    ear = world.store.listener()

    def check():
        with ear.link.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(600)")

    def listen():
        assert ear.wait(DEADLINE)
        return ear.wait(DEADLINE)

    monkeypatch.setattr(ear, "_check", check)
    monkeypatch.setattr(listener, "PAUSE", 0.0)
    monkeypatch.setattr(listener, "CHECK_EVERY", 0.0)
    waiting = Thread(listen)
    with connection.cursor() as cursor:
        asleep = "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
        wait_for(lambda: cursor.execute(asleep) or cursor.rowcount, what="its check")
    shut_down(ear.link)
    assert waiting.result() is False
    assert ear.channel == ""


def test_one_that_is_ended_in_a_wait(world, ear, monkeypatch):
    monkeypatch.setattr(listener, "PAUSE", 0.0)
    ear._wrapper.inc_thread_sharing()
    waiting = Thread(ear.wait, DEADLINE)
    end(backend(ear))
    assert waiting.result() is False
    wait_for(lambda: ear.wait(0), what="a yes")


def test_one_that_was_closed_under_it(world, ear, monkeypatch):
    monkeypatch.setattr(listener, "PAUSE", 0.0)
    ear._wrapper.connection.close()
    assert ear.wait(SHORTLY) is False
    assert ear.wait(0)


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


# Behind a pooler


def test_behind_a_pooler_nobody_listens(world, idle, monkeypatch):
    """The pooler's next client would be told instead. Who waits is not kept from polling."""
    monkeypatch.setattr(listener, "is_pooled", lambda cursor: True)
    with contextlib.closing(world.store.listener()) as ear:
        ear.wait(0)
        before = time.monotonic()
        world.enqueue()
        assert not ear.wait(SHORTLY)
        assert time.monotonic() - before >= SHORTLY
        assert ear._wrapper is None
