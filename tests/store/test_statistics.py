"""The store contract: Statistic says what the log says."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection

from atp.models import (
    ALL_TYPES,
    COUNTS,
    EPOCH,
    HISTOGRAMS,
    LogRecord,
    Span,
    Statistic,
    Type,
    Uncounted,
)
from atp.reports import statistics
from atp.states import Event, Reason

from ..helpers import open_transaction
from .broken import execute
from .internals import Statistics
from .world import DAY, ONE, SECOND, TWO, move_of, needs_row_locks, only_sqlite


class Counting:
    """A daemon that counts what it records, as the dispatcher does."""

    def __init__(self, world):
        self.world, self.host, self.adder = world, world.host(name="one"), Statistics()
        self.adder.restart(self.host.row.counted)
        self.who = f"{self.host.row} worker 1"

    def attempt(self, *ends, **facts):
        """Claim and start an Instance, and record these ends of it; returns the moves."""
        self.world.enqueue()
        [claimed] = self.host.claim()
        began = self.world.store.now() - 2 * SECOND
        claimed.began = began
        known = {"who": self.who, "of": claimed}
        start = move_of(claimed, Event.START, time=began, **known)
        later = {"time": began + SECOND, **known, **facts}
        moves = [start, *[move_of(claimed, event, **later) for event in ends]]
        self.deliver(moves)
        return moves

    def deliver(self, moves):
        refused = self.world.store.records.deliver(moves, daemon=self.host.uuid).refused
        self.adder.recorded(moves, refused)

    def add(self):
        """Add what is counted, as a renewal does; tells whether that was done."""
        counts = self.adder.send(is_last=True)
        is_added = self.adder.add(self.world.store, self.host.uuid, counts)
        self.adder.answered()
        return is_added


@pytest.fixture
def daemon(world):
    return Counting(world)


def lose(world, daemon, besides=None):
    """Let the daemon be lost, and its last counts be made up for from the log."""
    daemon.host.lose_lease()
    world.store.daemons.sweep(daemon=besides)
    pay(world)


def pay(world):
    while world.store.statistics.pay(limit=2):
        """There is more."""


def plain(cells):
    return {
        type: ({name: number for name, number in cell.counts.items() if number}, cell.run)
        for type, cell in cells.items()
    }


def counted():
    """Return the counts of the Type, which the log confirms."""
    found = plain(statistics.sums())
    assert found == plain(statistics.recounted())
    return found[ONE][0]


def test_each_end_that_a_daemon_has_recorded_is_counted_with_its_renewal(daemon):
    """One that is lost has no run time."""
    daemon.attempt(Event.FINISH)
    for event in (Event.RETRY, Event.DEFER):
        daemon.attempt(event, delay=DAY)
    for reason in (Reason.ERROR, Reason.FATAL):
        daemon.attempt(Event.FAIL, reason=reason)
    daemon.attempt(Event.EXPIRE)
    assert not Statistic.objects.exists()
    assert daemon.add()
    ends = ("finished", "retried", "deferred", "failed_error", "failed_fatal", "lost")
    assert counted() == {"started": 6, **dict.fromkeys(ends, 1), "wall_us": 5_000_000}
    assert sum(statistics.sums()[ONE].wait) == 6


def test_the_last_counts_of_a_killed_daemon_are_made_up_for(world, daemon):
    daemon.attempt(Event.FINISH)
    assert daemon.add()
    daemon.attempt(Event.FINISH)
    daemon.attempt()
    daemon.host.lose_lease()
    world.store.daemons.sweep()
    assert world.store.daemons.outlook([ONE]).owed
    pay(world)
    assert not world.store.daemons.outlook([ONE]).owed
    assert counted() == {"started": 3, "finished": 2, "lost": 1, "wall_us": 2_000_000}
    assert not Uncounted.objects.exists()


def test_a_daemon_that_has_the_name_of_a_killed_one_is_not_counted_twice(world):
    """As in a container that is started again: it has the same host, and pid 1."""
    killed = Counting(world)
    killed.attempt(Event.FINISH)
    started = Counting(world)
    assert started.who == killed.who
    for _ in range(3):
        started.attempt(Event.FINISH)
    assert started.add()
    lose(world, killed, besides=started.host.uuid)
    assert counted() == {"started": 4, "finished": 4, "wall_us": 4_000_000}


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_daemon_that_comes_back_is_not_counted_twice(world, daemon, is_swept):
    """An acknowledgement got lost: that end is recorded again under the next identity."""
    moves = daemon.attempt(Event.FINISH)
    if is_swept:
        daemon.host.lose_lease()
        world.store.daemons.sweep()
    daemon.host = world.host(name="one", old=daemon.host.uuid)
    daemon.adder.restart(daemon.host.row.counted)
    if is_swept:
        daemon.attempt(Event.FINISH)
    else:
        daemon.deliver(moves)
    assert daemon.add()
    pay(world)
    count = 1 + is_swept
    assert counted() == {"started": count, "finished": count, "wall_us": count * 1_000_000}


@needs_row_locks
@pytest.mark.parametrize("locked", ["TABLE", "ROWS"])
def test_a_lock_of_somebody_else_costs_no_count(handing_world, locked):
    """G11: what cannot be added now is added later."""
    world, daemon = handing_world, Counting(handing_world)
    daemon.attempt(Event.FINISH)
    assert daemon.add()
    daemon.attempt(Event.FINISH)

    locks = {"TABLE": "LOCK TABLE atp_statistic", "ROWS": "SELECT FROM atp_statistic FOR UPDATE"}
    with open_transaction(lambda: execute(locks[locked])):
        world.store.limit_waiting(0.1)
        assert daemon.add() == (locked == "ROWS")
        if locked == "ROWS":
            # It steps over the locked rows. Of the others there may be four, of two minutes.
            assert world.store.statistics.fold(world.store.now() + timedelta(minutes=3)) <= 4
        world.store.limit_waiting(0)
    assert locked == "ROWS" or daemon.add()
    assert counted() == {"started": 2, "finished": 2, "wall_us": 2_000_000}


@only_sqlite
def test_a_full_disk_costs_no_count(handing_world):
    """G11."""
    daemon = Counting(handing_world)
    for number in range(100):
        # So many rows that there is no room for them in the pages that there are.
        daemon.adder._counts.add(f"type {number}", Event.START, handing_world.store.now())
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA page_count")
        [pages] = cursor.fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
    assert not daemon.add()
    execute("PRAGMA max_page_count = 4294967294")
    assert daemon.add()
    assert len(statistics.sums()) == 100


def test_what_others_do_is_counted_as_they_do_it(world, daemon):
    """And what is given up is counted as stale."""
    [key] = world.enqueue()
    world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED)
    assert counted() == {"failed_cancelled": 1}
    assert [r.counted for r in LogRecord.objects.filter(kind=Event.FAIL)] == [True]
    daemon.attempt()
    Type.objects.update(max_restarts=0)
    lose(world, daemon)
    assert counted() == {"failed_cancelled": 1, "started": 1, "lost": 1, "failed_stale": 1}


def test_the_counts_of_a_type_outlive_it(world, daemon):
    [start, _] = daemon.attempt(Event.FINISH)
    assert daemon.add()
    before = plain(statistics.sums())
    world.store.removal.purge(instances=[start.instance])
    world.store.types.unregister(ONE)
    assert not LogRecord.objects.filter(kind=Event.FINISH).exists()
    assert plain(statistics.sums()) == before


def added_up(rows):
    """Return the counts of all the rows together, by span and start."""
    added = {}
    for row in rows:
        counts = added.setdefault((row.span, row.start), Counter())
        counts.update({name: getattr(row, name) for name in COUNTS})
        for name in HISTOGRAMS:
            counts.update({(name, place): n for place, n in enumerate(getattr(row, name))})
    return added


def test_rows_of_all_types_equal_the_sum_over_the_types(world, daemon):
    """Counts of a daemon, of other transactions, and of the log are added to them."""

    def check():
        of_all = Statistic.objects.filter(type=ALL_TYPES)
        assert added_up(of_all) == added_up(Statistic.objects.exclude(type=ALL_TYPES))
        return sum((+counts for counts in added_up(of_all).values()), Counter())

    daemon.attempt(Event.FINISH)
    assert daemon.add()
    [key] = world.enqueue(type=TWO)
    world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED)
    daemon.attempt(Event.RETRY, delay=DAY)
    lose(world, daemon)
    before = check()
    names = ("started", "finished", "failed_cancelled", "retried")
    assert [before[name] for name in names] == [2, 1, 1, 1]
    for later in (timedelta(minutes=3), 3 * DAY, 100 * DAY):
        while world.store.statistics.fold(world.store.now() + later):
            assert check() == before
    assert set(Statistic.objects.values_list("span", "type")) == {
        (Span.TOTAL, type) for type in (ALL_TYPES, ONE, TWO)
    }


def old_rows(now):
    for days in (0, 1, 3, 3, 4, 89, 95, 96, 200):
        start = (now - days * DAY).replace(second=0, microsecond=0)
        for minutes in (0, 0, 1, 5):
            at = start - timedelta(minutes=minutes + 3)
            Statistic.objects.create(
                span=Span.MINUTE, start=at, type=ONE, finished=1, wall_us=10**14, run=[1, 2]
            )


def test_folding_keeps_the_totals(world):
    now = world.store.now()
    old_rows(now)
    before = plain(statistics.sums())
    while world.store.statistics.fold(now, 5):
        assert plain(statistics.sums()) == before
    spans = {span: [] for span in Span}
    for row in Statistic.objects.all():
        spans[Span(row.span)].append(row.start)
    assert spans[Span.TOTAL] == [EPOCH]
    assert all(start > now - timedelta(days=2, hours=1) for start in spans[Span.MINUTE])
    assert len(spans[Span.MINUTE]) == 6
    assert len(spans[Span.HOUR]) == len(set(spans[Span.HOUR])) > 2
    keys = set(Statistic.objects.values_list("pk", flat=True))
    assert not world.store.statistics.fold(now)
    assert set(Statistic.objects.values_list("pk", flat=True)) == keys
