"""The store contract: join, renew, leave, and what becomes of a lost daemon."""

import logging
import os
import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from atp import messages
from atp.commands import DaemonCommand
from atp.exceptions import LeaseLost
from atp.models import Daemon, Kind, LogRecord, Task
from atp.states import CLAIMED, Event, Reason, State

from ..helpers import open_transaction
from ..nonsense import tells
from .internals import filelock
from .world import DAY, HOUR, LEASE, ONE, SECOND, needs_row_locks, only_sqlite


def log_of(host_row):
    return [record.kind for record in LogRecord.objects.about(f"daemon:{host_row}")]


def replace_file():
    """Put a copy of the database in its place; the connections still have the old file.

    The copy has the same pages, since who opens it reads the write-ahead log of the old file.
    """
    name = connection.settings_dict["NAME"]
    copy = f"{name}.copy"
    with closing(sqlite3.connect(name)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    os.replace(copy, name)


@only_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_file_that_was_replaced_before_the_daemon_joins_again(world, host):
    """G1, G11: it does not join through a connection to the old file, which nobody else sees."""
    replace_file()
    with pytest.raises(LeaseLost):
        world.host(old=host.uuid)
    connection.close()
    again = world.host(old=host.uuid)
    world.store.daemons.renew(again.uuid, lease=LEASE)
    assert list(Daemon.objects.values_list("uuid", flat=True)) == [again.uuid]
    # Another may join, as in the tests of a project, whose database is another each time.
    replace_file()
    connection.close()
    world.host()


def test_a_daemon_that_joins_has_a_row_and_a_lease(world):
    before = world.store.now()
    host = world.host()
    row, joined = host.row, host.joined
    assert before <= joined.time <= world.store.now()
    assert row.lease_until == joined.time + LEASE * SECOND
    assert (row.started, row.seen) == (joined.time, joined.time)
    assert (row.host, row.pid, row.version, row.request) == ("host", 1, "1", "")
    assert ONE in row.types
    assert (dict(joined.kept), joined.expired) == ({}, 0)
    assert log_of(row) == [Kind.STARTED]


def test_with_an_old_identity_it_moves_what_is_still_in_hand(world, host):
    """G3: the attempts that its workers still run go on under the new identity."""
    mine, lost = (world.bring_to(State.RUNNING, host) for _ in range(2))
    new = world.host(old=host.uuid, holding={(mine.instance, mine.number)})
    assert dict(new.joined.kept) == {(mine.instance, mine.number): State.RUNNING}
    assert new.joined.expired == 1
    assert new.holds() == {mine.instance}
    assert host.row is None
    new.move(mine, Event.FINISH)
    assert world.get(lost.instance).restarts == 1
    last = world.log(lost.instance)[-1]
    assert (last.event, last.level) == (Event.EXPIRE, logging.WARNING)
    assert last.message


@pytest.mark.django_db(transaction=True)
@needs_row_locks
def test_an_order_is_handed_on_once(world, host):
    """Or the new row would be given it again after an operator has taken it back."""
    world.store.daemons.command(host.uuid, DaemonCommand.QUIET)
    held = world.bring_to(State.RUNNING, host)
    holding = {(held.instance, held.number)}
    with open_transaction(lambda: list(Task.objects.select_for_update())):
        new = world.host(old=host.uuid, holding=holding)
        assert (new.joined.request, new.joined.is_settled) == ("quiet", False)
        world.store.daemons.command(new.uuid, DaemonCommand.RESUME)
        for _ in range(2):
            settled = world.store.daemons.settle(host.uuid, new.uuid, lease=LEASE, holding=holding)
            assert (settled.request, new.row.request) == ("", "")


def test_a_renewal_extends_the_lease_and_writes_what_the_workers_do(world):
    host = world.host(lease=1)
    workers = [{"pid": 5, "instance": "x"}]
    answer = world.store.daemons.renew(host.uuid, lease=60, workers=workers, idle=True)
    row = host.row
    assert (row.lease_until, answer.request) == (answer.time + 60 * SECOND, "")
    assert (row.seen, row.workers, row.idle) == (answer.time, workers, True)


def test_what_a_leaving_daemon_holds_is_released_uncharged(world, host):
    """G10."""
    cases = [world.bring_to(state, host) for state in CLAIMED]
    row = host.row
    world.store.daemons.leave(host.uuid)
    assert host.row is None
    assert log_of(row) == [Kind.STARTED, Kind.LEFT]
    assert LogRecord.objects.about(f"daemon:{row}").last().detail == str(row.uuid)
    for case in cases:
        instance = world.get(case.instance)
        assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 0, 0)
        assert world.events(case.instance)[-1] == Event.RELEASE
    assert len(world.host().claim()) == 3


def test_a_lost_daemon_loses_what_it_holds_and_its_row(world):
    """G1, G2, G3: the log tells who took it away and why; what others hold is theirs."""
    lost, sweeper = world.host(name="lost"), world.host(name="sweeper")
    kept = world.bring_to(State.RUNNING, sweeper)
    case = world.bring_to(State.RUNNING, lost)
    name = str(lost.row)
    lost.lose_lease()
    swept = world.store.daemons.sweep(daemon=sweeper.uuid)
    assert (swept.daemons, swept.expired) == ((name,), 1)
    assert (lost.row, world.state(case.instance)) == (None, State.ACCEPTED)
    last = world.log(case.instance)[-1]
    assert (last.event, last.who) == (Event.EXPIRE, str(sweeper.row))
    assert tells(last.message, messages.daemon_lost("lost:1"))
    gone = LogRecord.objects.about(f"daemon:{name}").last()
    assert (gone.kind, gone.detail.split()[0]) == (Kind.LOST, str(lost.uuid))
    assert tells(gone.message, messages.daemon_lost_tasks(lost.uuid, 1))
    assert world.state(kept.instance) == State.RUNNING
    assert sweeper.claim()[0].instance == case.instance


def test_a_lease_that_is_a_file_lock(world, host):
    """G3: on one host the kernel says when the last of its processes is dead."""
    path = str(world.folder / "family.lock")
    descriptor = filelock.acquire_lock(path)
    over = world.store.now() - DAY
    Daemon.objects.filter(uuid=host.uuid).update(lock=path, lease_until=over)
    assert world.store.daemons.sweep().daemons == ()
    os.close(descriptor)
    assert len(world.store.daemons.sweep().daemons) == 1
    assert not os.path.exists(path)
    # A file that is gone is held by nobody.
    Daemon.objects.filter(uuid=world.host().uuid).update(lock=path)
    assert len(world.store.daemons.sweep().daemons) == 1


def test_what_was_not_started_in_time_fails(world):
    past, future = world.store.now() - SECOND, world.store.now() + HOUR
    late = world.enqueue(start_before=past) + world.enqueue(start_before=past, due=future)
    others = world.enqueue(start_before=future) + world.enqueue()
    host = world.host()
    assert world.store.claims.miss(who=str(host.row)) == 2
    for key in late:
        instance = world.get(key)
        assert (instance.state, instance.reason) == (State.FAILED, Reason.MISSED)
        assert world.log(key)[-1].who == str(host.row)
    assert {world.state(key) for key in others} == {State.ACCEPTED}
    world.enqueue(5, start_before=past)
    assert [world.store.claims.miss(limit=3) for _ in range(3)] == [3, 2, 0]
