"""The store contract: sweep."""

import os
from datetime import timedelta

import pytest

from atp.models import Daemon, LogRecord
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store import filelock
from atp.words import attempt_messages, log_messages

from ..nonsense import tells
from .world import SECOND


def test_nothing_to_sweep(world):
    host = world.host()
    world.enqueue()
    swept = world.store.sweep(daemon=host.uuid)
    assert (swept.daemons, swept.expired) == ((), 0)
    assert world.store.miss() == 0
    assert host.row is not None


def test_a_lost_daemon_loses_what_it_holds_and_its_row(world):
    """G1 and G2: the log tells who took it away and why."""
    lost, sweeper = world.host(name="lost"), world.host(name="sweeper")
    case = world.bring_to(State.RUNNING, lost)
    name = str(lost.row)
    lost.lose_lease()
    swept = world.store.sweep(daemon=sweeper.uuid)
    assert (swept.daemons, swept.expired) == ((name,), 1)
    assert (lost.row, world.state(case.instance)) == (None, State.ACCEPTED)
    last = world.log(case.instance)[-1]
    assert (last.event, last.who) == (Event.EXPIRE, str(sweeper.row))
    assert tells(last.message, attempt_messages.daemon_lost("lost:1"))
    gone = LogRecord.objects.about(f"daemon:{name}").last()
    assert (gone.kind, gone.detail) == (Kind.LOST, str(lost.uuid))
    assert tells(gone.message, log_messages.lost(lost.uuid, 1))
    assert sweeper.claim()[0].instance == case.instance


def test_a_daemon_never_sweeps_itself(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    host.lose_lease()
    assert world.store.sweep(daemon=host.uuid).expired == 0
    assert host.holds() == {case.instance}


def test_a_live_daemon_keeps_what_it_holds(world):
    """G3."""
    live, lost = world.host(name="live"), world.host(name="lost")
    kept, gone = world.bring_to(State.RUNNING, live), world.bring_to(State.RUNNING, lost)
    lost.lose_lease()
    assert world.store.sweep().expired == 1
    assert world.state(kept.instance) == State.RUNNING
    assert world.state(gone.instance) == State.ACCEPTED


def test_an_idle_daemon_that_is_lost_is_removed(world):
    host = world.host()
    host.lose_lease()
    assert len(world.store.sweep().daemons) == 1
    assert not Daemon.objects.exists()


def test_the_limit_holds_and_the_row_stays_until_all_is_taken_away(world):
    """In bounded chunks; a row that still holds something is needed as the fence."""
    world.enqueue(5)
    host = world.host()
    host.claim()
    host.lose_lease()
    first = world.store.sweep(limit=3)
    assert (first.daemons, first.expired) == ((), 3)
    assert len(host.holds()) == 2
    second = world.store.sweep(limit=3)
    assert (len(second.daemons), second.expired) == (1, 2)


class TestLease:
    def test_by_time(self, world):
        if world.store.lock_folder is not None:
            pytest.skip("here the lease is a file lock")
        host = world.host()
        for left, daemons in ((timedelta(minutes=1), 0), (-SECOND, 1)):
            until = world.store.now() + left
            Daemon.objects.filter(uuid=host.uuid).update(lease_until=until)
            assert len(world.store.sweep().daemons) == daemons

    def test_by_file_lock(self, world):
        """G3: on one host the kernel says when the last of its processes is dead."""
        host = world.host()
        path = str(world.folder / "family.lock")
        descriptor = filelock.acquire(path)
        over = world.store.now() - timedelta(days=1)
        Daemon.objects.filter(uuid=host.uuid).update(lock=path, lease_until=over)
        assert world.store.sweep().daemons == ()
        os.close(descriptor)
        assert len(world.store.sweep().daemons) == 1
        assert not os.path.exists(path)

    def test_a_lock_file_that_is_gone_is_a_lost_daemon(self, world):
        host = world.host()
        Daemon.objects.filter(uuid=host.uuid).update(lock=str(world.folder / "gone.lock"))
        assert len(world.store.sweep().daemons) == 1


class TestMissed:
    def test_what_was_not_started_in_time_fails(self, world):
        now = world.store.now()
        [late] = world.enqueue(start_before=now - SECOND)
        [future] = world.enqueue(start_before=now - SECOND, due=now + timedelta(hours=1))
        [early] = world.enqueue(start_before=now + timedelta(hours=1))
        [never] = world.enqueue()
        host = world.host()
        assert world.store.miss(who=str(host.row)) == 2
        for key in (late, future):
            instance = world.get(key)
            assert (instance.state, instance.reason) == (State.FAILED, Reason.MISSED)
            assert world.log(key)[-1].who == str(host.row)
        assert world.state(early) == world.state(never) == State.ACCEPTED

    def test_what_is_claimed_is_not_missed(self, world):
        host = world.host()
        world.enqueue(start_before=world.store.now() + timedelta(hours=1))
        [claimed] = host.claim()
        task = world.task(claimed.instance)
        task.start_before = world.store.now() - SECOND
        task.save()
        assert world.store.miss() == 0
        host.move(claimed, Event.START, Event.FINISH)

    def test_the_limit_holds(self, world):
        world.enqueue(5, start_before=world.store.now() - SECOND)
        assert [world.store.miss(limit=3) for _ in range(3)] == [3, 2, 0]
