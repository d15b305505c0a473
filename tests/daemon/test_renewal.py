"""What a daemon has counted goes with its renewals, each event once."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from atp.daemon.dispatcher.database_thread import Result
from atp.daemon.membership.renewal import RENEWING, Renewal
from atp.daemon.pool import statistics
from atp.states import Event
from atp.store.values import Renewal as Renewed
from atp.words.orders import Mode

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


class Database:
    """A store and its thread; ``is_there`` says whether counts are added, ``renewed`` the answer.

    ``added`` holds whether anything was counted, of each addition, and ``told`` all calls.
    """

    def __init__(self):
        self.is_there, self.renewed = True, Renewed(time=NOW, request="")
        self.added, self.told = [], []
        self.statistics = SimpleNamespace(add=self.add)

    def add(self, daemon, counts):
        self.told.append("add")
        self.added += [bool(counts)] if self.is_there else []
        return self.is_there

    def renew(self, daemon, **facts):
        self.told.append("idle" if facts["idle"] else "renew")
        if self.renewed is None:
            raise OperationalError("a lock of somebody else")
        return self.renewed

    def submit(self, doing, call, then):
        self.call, self.then = call, then


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def core(database):
    counts = statistics.Statistics()
    counts._sent_at = -statistics.MOVE_ON
    counts._counts.add("one", Event.START, NOW)
    return SimpleNamespace(
        store=database,
        statistics=counts,
        timers=SimpleNamespace(later=lambda *_: None),
        identity=SimpleNamespace(current="uuid", lease_until=0.0, renewed=lambda *_: None),
        misfits=SimpleNamespace(by_type=dict),
        queue=SimpleNamespace(call=lambda: None),
        caution=SimpleNamespace(met=lambda *_: None),
        tell=lambda *_: None,
    )


@pytest.fixture
def renewal(core):
    return Renewal(
        core,
        SimpleNamespace(workers=tuple),
        SimpleNamespace(is_idle=lambda: True, is_claiming=False),
        SimpleNamespace(channel="atp_1"),
        SimpleNamespace(mode=Mode.RUNNING, obey=lambda *_: None),
    )


def renew(renewal, database):
    renewal.start(database)
    try:
        value = database.call()
    except OperationalError as error:
        renewal.locked(Result(RENEWING, None, error=error, is_locked=True))
    else:
        database.then(Result(RENEWING, None, value=value))


def test_the_row_says_idle_last(renewal, database):
    """G15: an enqueue leaves a row alone that is locked, and adding the counts locks it."""
    renew(renewal, database)
    assert database.told == ["add", "idle"]


def test_counts_that_are_added_are_not_sent_again_if_the_renewal_meets_a_lock(
    renewal, database, core
):
    database.renewed = None
    renew(renewal, database)
    assert database.added == [True]
    assert not core.statistics.send(is_last=True)


def test_counts_that_are_not_added_are_kept(renewal, database, core):
    database.is_there = False
    renew(renewal, database)
    assert core.statistics.send(is_last=True)


@pytest.mark.parametrize("answer", [None, Renewed(time=NOW, request="", is_spare=True)])
def test_a_row_that_was_locked_is_not_waited_for_twice(renewal, database, core, answer):
    """G5: the next renewal does not try to add counts first."""
    database.renewed = answer
    renew(renewal, database)
    core.statistics._sent_at = -statistics.MOVE_ON
    renew(renewal, database)
    assert database.told == ["add", "idle", "idle"]


def test_counts_are_added_once_a_second_at_most(renewal, database, core):
    renew(renewal, database)
    core.statistics._counts.add("one", Event.FINISH, NOW)
    renew(renewal, database)
    assert database.told == ["add", "idle", "idle"]
