"""The table of chores: each is done when it is due, one at a time in a thread."""

from types import SimpleNamespace

import pytest
from django.db import OperationalError

from atp.daemon.chores import chore as module
from atp.daemon.chores import graphs as graphs_module
from atp.daemon.chores import table
from atp.daemon.chores.chore import LONG, Chore, Chores, Portion, run_due
from atp.daemon.chores.counting import Count, CountFailures
from atp.daemon.chores.dropping import Drop
from atp.daemon.chores.graphs import IDLE, Graphs
from atp.daemon.chores.looking import Look
from atp.daemon.chores.missing import Miss
from atp.daemon.chores.planning import Plan
from atp.daemon.chores.sweeping import Sweep
from atp.daemon.chores.trimming import Trim
from atp.daemon.dispatcher.queue_state import QueueState
from atp.daemon.system import timers
from atp.daemon.system.timers import Timers
from atp.store.values import Outlook

TABLE = [*table.ON_THE_LOOP, *table.CLAIMING, *table.RECORDING, *table.PURGING]


class Every(Chore):
    """Done every ten seconds."""

    name, doing = "every", "doing it"

    def every(self):
        return 10.0

    def call(self):
        return lambda: "done"

    def run(self):
        self.attempts.append(self.name)


class Wanted(Every):
    """Done when a look has found a reason."""

    name = "wanted"

    def every(self):
        return None


class Thread:
    """Does nothing but remember what it was given."""

    def __init__(self):
        self.busy, self.done = False, []

    def submit(self, doing, call, then, failed):
        self.done.append((doing, call()))


@pytest.fixture
def hall(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(timers, "uptime", lambda: clock.now)
    core = SimpleNamespace(timers=Timers(), queue=QueueState())
    return SimpleNamespace(clock=clock, core=core, thread=Thread())


def test_each_entry_of_the_table_is_whole():
    """The names are their timers', so no two are the same."""
    assert len({entry.name for entry in TABLE}) == len(TABLE)
    for entry in TABLE:
        assert entry.name
        on_the_loop = entry in table.ON_THE_LOOP
        assert on_the_loop == (entry.run is not module.Chore.run)
        assert on_the_loop == (entry.call is module.Chore.call)
        assert on_the_loop or entry.doing


def test_it_is_done_every_so_often(hall):
    chores = Chores(hall.thread, [Every(hall.core)])
    assert chores.turn()
    assert not chores.turn()
    hall.clock.now += 10
    assert chores.turn()
    assert hall.thread.done == [("doing it", "done")] * 2


def test_a_thread_does_one_at_a_time(hall):
    hall.thread.busy = True
    assert not Chores(hall.thread, [Every(hall.core)]).turn()
    hall.thread.busy = False
    assert Chores(hall.thread, [Every(hall.core)]).turn()


def test_one_without_an_interval_is_done_when_it_is_wanted(hall):
    wanted = Wanted(hall.core)
    chores = Chores(hall.thread, [wanted])
    assert not chores.turn()
    wanted.again()
    assert chores.turn()
    assert not chores.turn()


def test_the_event_loop_does_all_that_are_due(hall):
    done = []
    entries = [Every(hall.core, done), Wanted(hall.core, done)]
    entries[1].again()
    run_due(entries)
    run_due(entries)
    assert done == ["every", "wanted"]


@pytest.mark.parametrize(
    ("outlook", "names"),
    [
        (Outlook(), set()),
        (Outlook(lost=True), {"sweep"}),
        (Outlook(late=True, drops=True), {"miss", "drop"}),
    ],
)
def test_a_look_finds_reasons_for_others(hall, outlook, names):
    orders = SimpleNamespace(hint=lambda request: None)
    look = Look(hall.core, None, orders)
    look._put_backs = 0
    look.done(SimpleNamespace(value=outlook, sent=0.0))
    assert hall.core.queue.chores == names
    assert names <= {entry.name for entry in TABLE}


class TestUpkeepOfGraphs:
    """It takes a connection of its own, which a daemon without graphs need not open."""

    @pytest.fixture
    def graphs(self, hall, monkeypatch):
        monkeypatch.setattr(graphs_module, "uptime", lambda: hall.clock.now)
        hall.core.identity = SimpleNamespace(is_registered=True)
        hall.core.timers.later(Graphs.purging, 1000)
        return Graphs(hall.core)

    @pytest.fixture
    def look(self, hall):
        def look(found):
            one = Look(hall.core, None, SimpleNamespace(hint=lambda request: None))
            one._put_backs = 0
            one.done(SimpleNamespace(value=Outlook(graphs=found), sent=hall.clock.now))

        return look

    def test_it_is_done_unless_a_look_has_found_none(self, graphs, look):
        assert graphs.may()
        look(False)
        assert not graphs.may()
        look(True)
        assert graphs.may()

    def test_a_daemon_that_does_not_look_does_it(self, hall, graphs, look):
        look(False)
        hall.clock.now += IDLE
        assert graphs.may()

    def test_the_purge_of_graphs_has_its_turn(self, hall, graphs, look):
        look(False)
        hall.core.timers.now(Graphs.purging)
        assert graphs.may()


def test_failures_that_are_not_counted_are_told_as_that(hall, caplog):
    """Not as rows that were not removed; and they are counted soon after."""
    hall.core.counters = SimpleNamespace(has_failures=False)
    with caplog.at_level("WARNING", logger="atp.daemon"):
        CountFailures(hall.core).failed(SimpleNamespace(error=OperationalError("away\n")))
    assert [record.fact for record in caplog.records] == ["failures_not_counted"]
    assert hall.core.counters.has_failures


class TestPortion:
    """What does not fit into the time of a call is tried again with less, not as it was."""

    @pytest.fixture
    def portion(self, monkeypatch):
        monkeypatch.setattr(module, "LONG_BY_VENDOR", {})
        self.clock = 1000.0
        monkeypatch.setattr(module, "uptime", lambda: self.clock)
        return Portion(first=100, most=200)

    def call(self, portion, seconds=0.0, error=None):
        with portion.measured() as size:
            self.clock += seconds
            if error is not None:
                raise error
        return size

    def test_a_call_that_fails_is_tried_again_with_half(self, portion):
        for expected in (50, 25, 12):
            with pytest.raises(OperationalError):
                self.call(portion, error=OperationalError("cut"))
            assert portion.size == expected

    def test_it_never_falls_to_nothing(self, portion):
        for _ in range(20):
            with pytest.raises(OperationalError):
                self.call(portion, error=OperationalError("cut"))
        assert portion.size == 1

    def test_a_long_call_makes_it_smaller_and_quick_ones_larger(self, portion):
        self.call(portion, seconds=2 * LONG)
        assert portion.size == 50
        for _ in range(5):
            self.call(portion, seconds=LONG / 10)
        assert portion.size == 200

    @pytest.mark.parametrize("kind", [Drop, Miss, Plan, Sweep, Trim, Count, CountFailures])
    def test_upkeep_that_is_cut_takes_less_the_next_time(self, hall, kind):
        """A cut call is rolled back: with as many it would be cut again, for ever."""
        limits = []

        def cut(*, limit, **more):
            limits.append(limit)
            raise OperationalError("cut")

        hall.core.identity = SimpleNamespace(name="x", current="x")
        hall.core.store = SimpleNamespace(
            drop=cut,
            miss=cut,
            sweep=cut,
            schedules=SimpleNamespace(plan=cut, trim=cut),
            statistics=SimpleNamespace(pay=lambda limit: cut(limit=limit)),
            errors=SimpleNamespace(count=cut),
        )
        chore = kind(hall.core)
        for _ in range(3):
            with pytest.raises(OperationalError):
                chore.call()()
        first = limits[0]
        assert limits == [first, first // 2, first // 4]
