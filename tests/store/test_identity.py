"""The store contract: join, renew, leave."""

import logging
import os
import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from atp.exceptions import LeaseLost
from atp.models import Daemon, LogRecord, Task
from atp.rows.log import Kind
from atp.states import Event, State
from atp.words.orders import Order

from ..helpers import open_transaction
from .world import LEASE, ONE, SECOND, Host


def joined(world, **kwargs):
    host = Host(world)
    world.hosts.append(host)
    return host, host.join(**kwargs)


def log_of(host_row):
    return [record.kind for record in LogRecord.objects.about(f"daemon:{host_row}")]


ON_A_FILE = pytest.mark.skipif(
    "connection.vendor != 'sqlite'", reason="only SQLite's database is a file"
)


def replace_file():
    """Put a copy of the database in its place; the connections still have the old file."""
    name = connection.settings_dict["NAME"]
    copy = f"{name}.copy"
    with closing(sqlite3.connect(name)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    os.replace(copy, name)


@ON_A_FILE
@pytest.mark.django_db(transaction=True)
def test_a_file_that_was_replaced_before_the_daemon_joins_again(world):
    """G1, G11: it does not join through a connection to the old file, which nobody else sees."""
    host, _ = joined(world)
    replace_file()
    refused, again = Host(world), Host(world)
    world.hosts += [refused, again]
    with pytest.raises(LeaseLost):
        refused.join(old=host.uuid)
    connection.close()
    again.join(old=host.uuid)
    world.store.renew(again.uuid, lease=LEASE)
    assert list(Daemon.objects.values_list("uuid", flat=True)) == [again.uuid]


@ON_A_FILE
@pytest.mark.django_db(transaction=True)
def test_another_daemon_may_join_after_the_file_was_replaced(world):
    """As in the tests of a project, whose database is another each time."""
    joined(world)
    replace_file()
    connection.close()
    joined(world)


class TestJoin:
    def test_it_gives_a_row_and_a_lease(self, world):
        before = world.store.now()
        host, joined_ = joined(world)
        row = host.row
        assert before <= joined_.time <= world.store.now()
        assert row.lease_until == joined_.time + LEASE * SECOND
        assert (row.started, row.seen) == (joined_.time, joined_.time)
        assert (row.host, row.pid, row.version, row.request) == ("host", 1, "1", "")
        assert ONE in row.types
        assert (dict(joined_.kept), joined_.expired) == ({}, 0)
        assert log_of(row) == [Kind.STARTED]

    def test_again_under_the_same_name_does_no_harm(self, world):
        host, _ = joined(world)
        case = world.bring_to(State.RUNNING, host)
        host.close()
        host.join()
        assert Daemon.objects.filter(uuid=host.uuid).count() == 1
        assert host.holds() == {case.instance}
        assert log_of(host.row) == [Kind.STARTED]

    def test_with_an_old_identity_it_moves_what_is_still_in_hand(self, world):
        """G3: the attempts that its workers still run go on under the new identity."""
        host = world.host()
        mine, lost = (world.bring_to(State.RUNNING, host) for _ in range(2))
        holding = {(mine.instance, mine.attempt)}
        new, answer = joined(world, old=host.uuid, holding=holding)
        assert dict(answer.kept) == {(mine.instance, mine.attempt): State.RUNNING}
        assert answer.expired == 1
        assert new.holds() == {mine.instance}
        assert host.row is None
        new.move(mine, Event.FINISH)
        assert world.get(lost.instance).restarts == 1
        last = world.log(lost.instance)[-1]
        assert (last.event, last.level) == (Event.EXPIRE, logging.WARNING)
        assert last.message

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")
    def test_an_order_is_handed_on_once(self, world):
        """Or the new row would be given it again after an operator has taken it back."""
        host = world.host()
        world.store.command(host.uuid, Order.QUIET)
        held = world.bring_to(State.RUNNING, host)
        holding = {(held.instance, held.attempt)}
        with open_transaction(
            lambda: list(Task.objects.filter(pk=held.instance).select_for_update())
        ):
            new, answer = joined(world, old=host.uuid, holding=holding)
            assert (answer.request, answer.is_settled) == ("quiet", False)
            world.store.command(new.uuid, Order.RESUME)
            for _ in range(2):
                settled = world.store.settle(host.uuid, new.uuid, lease=LEASE, holding=holding)
                assert (settled.request, new.row.request) == ("", "")

    def test_an_attempt_that_is_held_no_longer_is_not_moved(self, world):
        """G4: what another daemon has, or what waits, stays where it is."""
        host, other = world.host(), world.host()
        older = world.bring_to(State.SCHEDULED, host)
        taken = world.bring_to(State.RUNNING, host)
        host.move(taken, Event.RETRY)
        [again] = other.claim()
        waiting = world.bring_to(State.RUNNING, host)
        host.move(waiting, Event.RETRY)
        holding = {(c.instance, c.attempt) for c in (taken, waiting)}
        holding |= {(older.instance, older.attempt + 1), (2**40, 1)}
        new, answer = joined(world, old=host.uuid, holding=holding)
        assert (dict(answer.kept), new.holds()) == ({}, set())
        assert answer.expired == 1  # what is held, but not under that attempt
        assert other.holds() == {again.instance}

    def test_nothing_is_claimed_under_the_old_identity_any_more(self, world):
        world.enqueue()
        host = world.host()
        joined(world, old=host.uuid)
        with pytest.raises(LeaseLost):
            host.claim()
        with pytest.raises(LeaseLost):
            world.store.renew(host.uuid, lease=LEASE)

    def test_an_old_identity_that_is_gone_leaves_nothing_to_move(self, world):
        """A sweep was quicker."""
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        host.lose_lease()
        world.store.sweep()
        new, answer = joined(world, old=host.uuid, holding={(case.instance, case.attempt)})
        assert (dict(answer.kept), answer.expired, new.holds()) == ({}, 0, set())
        assert world.state(case.instance) == State.ACCEPTED

    @pytest.mark.parametrize(
        ("state", "restarts"), [(State.SCHEDULED, 0), (State.RUNNING, 1), (State.PAUSED, 1)]
    )
    def test_only_what_was_running_is_charged(self, world, state, restarts):
        """G5."""
        host = world.host()
        case = world.bring_to(state, host)
        joined(world, old=host.uuid)
        instance = world.get(case.instance)
        assert (instance.state, instance.restarts, instance.lost) == (State.ACCEPTED, restarts, 1)


class TestRenew:
    def test_it_extends_the_lease_and_writes_what_the_workers_do(self, world):
        host = world.host(lease=1)
        workers = [{"pid": 5, "instance": "x"}]
        answer = world.store.renew(host.uuid, lease=60, workers=workers, idle=True)
        row = host.row
        assert row.lease_until == answer.time + 60 * SECOND
        assert (row.seen, row.workers, row.idle) == (answer.time, workers, True)
        assert answer.request == ""

    def test_it_brings_the_daemons_request(self, world):
        host = world.host()
        Daemon.objects.filter(uuid=host.uuid).update(request="stop")
        assert world.store.renew(host.uuid, lease=LEASE).request == "stop"

    def test_without_a_row_the_lease_is_lost(self, world):
        host = world.host()
        world.store.leave(host.uuid)
        with pytest.raises(LeaseLost):
            world.store.renew(host.uuid, lease=LEASE)


class TestLeave:
    def test_what_it_still_held_is_released_uncharged(self, world):
        """G10."""
        host = world.host()
        cases = [world.bring_to(s, host) for s in (State.SCHEDULED, State.RUNNING, State.PAUSED)]
        row = host.row
        world.store.leave(host.uuid)
        assert host.row is None
        assert log_of(row) == [Kind.STARTED, Kind.LEFT]
        assert LogRecord.objects.about(f"daemon:{row}").last().detail == str(row.uuid)
        for case in cases:
            instance = world.get(case.instance)
            assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 0, 0)
            assert world.events(case.instance)[-1] == Event.RELEASE
        assert len(world.host().claim()) == 3

    def test_twice_does_no_harm(self, world):
        host = world.host()
        world.store.leave(host.uuid)
        before = world.snapshot()
        world.store.leave(host.uuid)
        assert world.snapshot() == before
