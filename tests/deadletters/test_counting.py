"""Error groups in the store: each dead letter is counted once, and nobody waits for it."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.models import ErrorGroup, Failure, Instance
from atp.states import Event, Reason
from atp.store import get_store
from atp.store.failures import failed
from atp.store.values import Move
from tests.helpers import Thread, at_once
from tests.store.world import ONE, World, registration

CAUSE = failed(ONE, ("a",), exception="builtins.ValueError", title="ValueError: a")
OTHER = failed(ONE, ("b",), title="b")


def moves(claimed, cause=CAUSE):
    return [
        Move(
            event=Event.FAIL,
            instance=each.instance,
            attempt=each.attempt,
            started=get_store().now(),
            time=get_store().now(),
            reason=Reason.ERROR,
            message="it failed",
            failed=cause,
        )
        for each in claimed
    ]


def fail(world, host, count, cause=CAUSE):
    """Have so many Instances fail for a cause; returns their keys."""
    keys = world.enqueue(count)
    assert host.record(*moves(host.claim(count), cause)) == []
    return keys


def test_a_dead_letter_is_in_its_group_and_is_counted(world):
    keys = fail(world, world.host(), 3)
    assert set(Instance.objects.values_list("error", flat=True)) == {CAUSE.group}
    assert world.store.errors.count() == 3
    group = ErrorGroup.objects.get()
    assert (group.pk, group.count, group.title) == (CAUSE.group, 3, "ValueError: a")
    assert bytes(group.fingerprint) == CAUSE.fingerprint
    seen = {group.first_instance, group.last_instance}
    assert seen <= {world.get(key).uuid for key in keys}
    assert not Failure.objects.exists()


def test_the_portable_way_and_the_quick_one_count_alike(world):
    """A batch with a loss in it is recorded by the portable store."""
    host = world.host()
    world.enqueue(2)
    first, second = host.claim(2)
    lost = Move(event=Event.EXPIRE, instance=second.instance, attempt=second.attempt)
    assert host.record(*moves([first]), lost) == []
    world.store.errors.count()
    assert ErrorGroup.objects.get().count == 1


def test_an_instance_that_finishes_has_no_group_and_costs_nothing(world):
    host = world.host()
    world.bring_to("FINISHED", host)
    assert Instance.objects.get().error_id is None
    assert not Failure.objects.exists()


def test_a_redrive_takes_it_out_of_its_group(world):
    host = world.host()
    [key] = fail(world, host, 1)
    assert world.as_anyone(Event.REDRIVE, key) == []
    assert world.get(key).error_id is None
    world.store.errors.count()
    assert ErrorGroup.objects.get().count == 1


def test_a_loss_too_many_is_in_the_group_of_its_kind(world):
    host = world.host()
    [key] = world.enqueue(type=registration(max_restarts=0))
    [claimed] = host.claim()
    host.move(claimed, Event.START)
    host.move(claimed, Event.EXPIRE, detail="memory")
    world.store.errors.count()
    assert world.get(key).reason == Reason.STALE
    assert ErrorGroup.objects.get().title == "out of memory"


def test_one_of_a_lost_daemon_is_in_the_group_of_those(world):
    host, other = world.host(), world.host()
    world.enqueue(type=registration(max_restarts=0))
    [claimed] = host.claim()
    host.move(claimed, Event.START)
    host.lose_lease()
    world.store.sweep(daemon=other.uuid)
    world.store.errors.count()
    assert ErrorGroup.objects.get().title == "daemon lost"


def test_a_cancelled_one_has_no_group(world):
    [key] = world.enqueue()
    world.store.cancel([key], who="ann")
    assert world.get(key).error_id is None


DAEMONS, EACH = 4, 25


@pytest.mark.django_db(transaction=True)
def test_many_fail_at_once_of_new_groups_and_none_is_lost(tmp_path):
    """Several daemons meet the same new groups, in any order, and count at the same time."""
    with World(get_store(), tmp_path) as world:
        hosts = [world.host() for _ in range(DAEMONS)]
        world.enqueue(DAEMONS * EACH * 2)
        held = [host.claim(EACH * 2) for host in hosts]

        def work(host, claimed, causes):
            for number, each in enumerate(claimed):
                assert host.record(*moves([each], causes[number % 2])) == []
                world.store.errors.count(limit=7)

        calls = [
            lambda h=host, c=claimed, o=(CAUSE, OTHER)[:: 1 if n % 2 else -1]: work(h, c, o)
            for n, (host, claimed) in enumerate(zip(hosts, held, strict=True))
        ]
        assert at_once(*calls) == [None] * DAEMONS
        while Failure.objects.exists():
            world.store.errors.count()
        counts = dict(ErrorGroup.objects.values_list("pk", "count"))
        assert counts == {CAUSE.group: DAEMONS * EACH, OTHER.group: DAEMONS * EACH}


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_whoever_has_locked_a_group_stops_nobody(tmp_path):
    """Neither an end nor a claim nor the count waits; what it holds is counted later."""
    with World(get_store(), tmp_path) as world:
        host = world.host()
        fail(world, host, 1)
        world.store.errors.count()
        with transaction.atomic():
            ErrorGroup.objects.select_for_update().get()

            def meanwhile():
                fail(world, host, 1)
                return world.store.errors.count()

            assert Thread(meanwhile).result() == 0
        assert world.store.errors.count() == 1
        assert ErrorGroup.objects.get().count == 2


def test_the_next_failure_after_a_mute_is_over_unmutes(world):
    host = world.host()
    fail(world, host, 1)
    world.store.errors.count()
    group = ErrorGroup.objects.get()
    world.store.errors.mute(group, by="ann", until=world.store.now() + timedelta(hours=1))
    fail(world, host, 1)
    world.store.errors.count()
    assert ErrorGroup.objects.get().is_muted
    ErrorGroup.objects.update(muted_until=world.store.now() - timedelta(seconds=1))
    assert ErrorGroup.objects.get().is_muted
    fail(world, host, 1)
    world.store.errors.count()
    group = ErrorGroup.objects.get()
    assert (group.is_muted, group.muted_until, group.count) == (False, None, 3)


def test_a_group_without_dead_letters_is_removed_when_it_is_old(world):
    host = world.host()
    [key] = fail(world, host, 1)
    world.store.errors.count()
    later = world.store.now() + timedelta(days=1)
    assert world.store.errors.trim(before=later) == 0
    world.store.purge(instances=[key])
    assert world.store.errors.trim(before=later) == 1
