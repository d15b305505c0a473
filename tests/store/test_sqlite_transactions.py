"""The store for SQLite: one writer at a time, also where the project has set no mode for it."""

import sqlite3
import threading
from contextlib import closing, contextmanager
from functools import partial

import pytest
from django.db import OperationalError, connection, transaction

from atp.models import Instance
from atp.states import Event, State

from ..helpers import DEADLINE, Thread, at_once, stays
from .internals import turns
from .world import only_sqlite

pytestmark = [only_sqlite, pytest.mark.django_db(transaction=True)]


@contextmanager
def options(**changes):
    """Change the options of the database, for new connections."""
    given = connection.settings_dict["OPTIONS"]
    before = dict(given)
    given.update(changes)
    connection.close()
    try:
        yield
    finally:
        given.clear()
        given.update(before)
        connection.close()


def connect(**given):
    return sqlite3.connect(connection.settings_dict["NAME"], **given)


@contextmanager
def somebody_writes():
    """Have another connection hold the lock for writing."""
    with closing(connect()) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_look_that_finds_nothing_waits_for_no_writer(world):
    """An idle daemon, which looks often, and an application do not disturb each other."""
    world.enqueue(due=world.store.now().replace(year=2100))
    host = world.host()
    with somebody_writes(), options(timeout=0.1):
        assert host.claim() == []
        assert world.store.claims.miss() == 0
        with pytest.raises(OperationalError, match="locked"):
            world.enqueue()


def test_without_a_mode_who_reads_before_it_writes_fails_for_no_other_writer(world, monkeypatch):
    """G3: nobody is told that the database is locked, and nothing is taken twice.

    A project may have set no transaction_mode: SQLite's own is DEFERRED.
    """
    monkeypatch.setattr(turns, "PATIENCE", 0)  # as for processes

    def drain(host):
        found = []
        while claimed := host.claim(4):
            for each in claimed:
                host.move(each, Event.START)
                host.move(each, Event.FINISH)
            found += [each.instance for each in claimed]
            world.store.daemons.sweep(daemon=host.uuid)
        return found

    with options(transaction_mode=None):
        refused = pytest.raises(sqlite3.OperationalError, match="locked")
        with world.store.atomic(), closing(connect(timeout=0)) as other, refused:
            other.execute("BEGIN IMMEDIATE")  # it writes from the beginning
        keys = world.enqueue(30)
        hosts = [world.host() for _ in range(3)]
        found = at_once(*[partial(drain, host) for host in hosts])
    assert sorted(key for part in found for key in part) == keys
    assert set(Instance.objects.values_list("state", flat=True)) == {State.FINISHED}


@contextmanager
def somebody_has_the_turn(world):
    taken, given_up = threading.Event(), threading.Event()

    def hold():
        with turns.turn(world.store.alias):
            taken.set()
            given_up.wait(DEADLINE)

    holder = Thread(hold)
    taken.wait(DEADLINE)
    try:
        yield
    finally:
        given_up.set()
        holder.result()


# The threads of a process do not leave it to SQLite who is next


def test_who_wants_to_write_waits_for_the_turn_unless_in_a_transaction(world, monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", DEADLINE)
    with somebody_has_the_turn(world):
        with transaction.atomic():
            [key] = world.enqueue()
        assert world.state(key) == State.ACCEPTED
        enqueue = Thread(world.enqueue)
        stays(enqueue.is_alive, 0.1, what="the wait")
        # Who has waited long enough goes on without.
        monkeypatch.setattr(turns, "PATIENCE", 0.01)
        assert world.enqueue(2)
    [key] = enqueue.result()
    assert world.state(key) == State.ACCEPTED


def test_what_a_commit_sets_off_may_take_another(world, monkeypatch):
    """As a receiver of a signal may that enqueues on commit."""
    monkeypatch.setattr(turns, "PATIENCE", DEADLINE)
    made = []
    with world.store.atomic():
        transaction.on_commit(lambda: made.extend(world.enqueue()))
    assert len(made) == 1
