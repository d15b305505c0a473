"""Each dead letter is counted once in its error group, and counting blocks nobody."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.models import ErrorGroup, Failure, Instance
from atp.states import Event, Reason
from atp.store import get_store
from atp.store.values import Move
from tests.helpers import Thread, at_once
from tests.store.world import ONE, World, registration

from .causes import failed, moves

CAUSE = failed(ONE, ("a",), exception="builtins.ValueError", title="ValueError: a")
OTHER = failed(ONE, ("b",), title="b")


def fail(world, host, count, cause=CAUSE):
    """Let this many Instances fail for one cause; return their keys."""
    keys = world.enqueue(count)
    assert host.record(*moves(host.claim(count), cause)) == []
    return keys


def test_each_dead_letter_is_counted_once_in_its_group(world):
    """A redrive removes the Instance from its group but does not change the count."""
    host = world.host()
    keys = fail(world, host, 3)
    assert set(Instance.objects.values_list("error", flat=True)) == {CAUSE.group}
    assert world.store.errors.count() == 3
    group = ErrorGroup.objects.get()
    assert (group.pk, group.count, group.title) == (CAUSE.group, 3, "ValueError: a")
    assert bytes(group.fingerprint) == CAUSE.fingerprint
    seen = {group.first_instance, group.last_instance}
    assert seen <= {world.get(key).uuid for key in keys}
    assert not Failure.objects.exists()
    assert world.as_anyone(Event.REDRIVE, keys[0]) == []
    assert world.get(keys[0]).error_id is None
    # What finishes or is cancelled has no group.
    world.store.control.cancel([keys[0]], who="ann")
    world.bring_to("FINISHED", host)
    assert Instance.objects.filter(error__isnull=True).count() == 2
    # A batch with a loss in it is recorded by the portable store, which counts alike.
    world.enqueue(2)
    first, second = host.claim(2)
    lost = Move(event=Event.EXPIRE, instance=second.instance, attempt=second.number)
    assert host.record(*moves([first], CAUSE), lost) == []
    world.store.errors.count()
    assert ErrorGroup.objects.get().count == 4


def test_stale_instances_are_grouped_by_the_cause_of_their_loss(world):
    host, other = world.host(), world.host()
    keys = world.enqueue(2, type=registration(max_restarts=0))
    first, second = host.claim()
    host.move(first, Event.START)
    host.move(second, Event.START)
    host.move(first, Event.EXPIRE, detail="memory")
    host.lose_lease()
    world.store.daemons.sweep(daemon=other.uuid)
    world.store.errors.count()
    assert {world.get(key).reason for key in keys} == {Reason.STALE}
    titles = set(ErrorGroup.objects.values_list("title", flat=True))
    assert titles == {"out of memory", "daemon lost"}


DAEMONS, EACH = 4, 25


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_concurrent_failures_of_new_groups_are_all_counted(tmp_path):
    """Several daemons record failures of the same new groups at once, in any order."""
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
def test_a_locked_group_blocks_neither_failures_nor_counting(tmp_path):
    """Failures are recorded and claims go on; the dead letters are counted later."""
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


def test_a_failure_after_the_end_of_a_mute_unmutes_the_group(world):
    """An old group is removed only if it is not muted and has no dead letters."""

    def once_more():
        fail(world, host, 1)
        world.store.errors.count()
        return ErrorGroup.objects.get()

    host = world.host()
    group = once_more()
    world.store.errors.mute(group, by="ann", until=world.store.now() + timedelta(hours=1))
    assert once_more().is_muted
    ErrorGroup.objects.update(muted_until=world.store.now() - timedelta(seconds=1))
    assert ErrorGroup.objects.get().is_muted
    group = once_more()
    assert (group.is_muted, group.muted_until, group.count) == (False, None, 3)
    later = world.store.now() + timedelta(days=1)
    assert world.store.errors.trim(before=later) == 0
    world.store.removal.purge(instances=list(Instance.objects.values_list("pk", flat=True)))
    world.store.errors.mute(group, by="ann", until=None)
    assert world.store.errors.trim(before=later) == 0
    world.store.errors.mute(group, by="")
    assert world.store.errors.trim(before=later) == 1
