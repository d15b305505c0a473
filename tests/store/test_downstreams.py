"""Downstreams in the stores: who claims what while one refuses calls or fails."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.exceptions import DownstreamChanged, UnknownDownstream
from atp.models import Downstream, LogRecord, Task, Type
from atp.protection.values import Report, State, Verdict
from atp.rows.log import Kind
from atp.states import Event

from ..helpers import Thread
from .world import ONE, THREE, TWO, registration, scope

ROW = Report(counts=((0.0, 0, 0, 10),), row=10)
REFUSED = Report(counts=((1.0, 10, 1, 0),), had_ok=True)


@pytest.fixture
def calling(world):
    """Two Types that call one downstream, and one that calls none; of each ten wait."""
    world.store.register([registration(name, downstream="relay") for name in (ONE, TWO)])
    for name in (ONE, TWO, THREE):
        world.enqueue(10, type=name)
    return world


def relay():
    return Downstream.objects.get(name="relay")


def change(**columns):
    Downstream.objects.filter(name="relay").update(**columns)


def types(claimed):
    return {task.type for task in claimed}


def opened(world):
    """Open the breaker, and let its time pass."""
    world.store.trip("relay")
    change(not_before=world.store.now())


class TestRegistering:
    def test_the_row_is_made_and_is_closed(self, calling):
        assert relay().state == State.CLOSED
        assert Type.objects.get(identifier=ONE).downstream == "relay"

    def test_again_it_stays_as_it_is(self, calling):
        calling.store.trip("relay")
        calling.store.register([registration(ONE, downstream="relay", max_retries=9)])
        assert relay().state == State.OPEN

    def test_another_name_makes_another_row(self, calling):
        calling.store.register([registration(ONE, downstream="other")])
        assert set(Downstream.objects.values_list("name", flat=True)) == {"relay", "other"}


class TestClosed:
    def test_all_is_claimed_and_the_row_is_not_touched(self, calling):
        before = Downstream.objects.values().get()
        assert len(calling.host().claim(30)) == 30
        assert Downstream.objects.values().get() == before

    def test_nothing_says_that_it_was_let_go(self, calling):
        assert {task.guard for task in calling.host().claim(30)} == {""}


class TestThrottled:
    def test_as_many_are_claimed_as_there_are_tokens_over_its_types(self, calling):
        calling.store.report("relay", REFUSED)
        change(tokens=3.0, per_second=0.01, refilled=calling.store.now())
        first, second = calling.host(), calling.host()
        claimed = [*first.claim(30), *first.claim(30), *second.claim(30)]
        protected = [task for task in claimed if task.type != THREE]
        assert len(protected) == 1  # no more than the burst
        assert {task.guard for task in protected} == {"rate"}
        assert len(claimed) == 11

    def test_a_limit_of_the_type_holds_beside_it(self, calling):
        calling.store.report("relay", REFUSED)
        change(tokens=50.0, per_second=1000.0, refilled=calling.store.now())
        calling.store.limit(scope(ONE), max_running=2)
        host = calling.host()
        claimed = [task for _ in range(5) for task in host.claim(30, free=30)]
        assert sum(task.type == ONE for task in claimed) == 2
        assert sum(task.type == TWO for task in claimed) == 10

    def test_nothing_before_the_time_that_it_asked_for(self, calling):
        calling.store.report("relay", Report(counts=((0.0, 9, 1, 0),), had_ok=True, after=600.0))
        assert types(calling.host().claim(30)) == {THREE}

    def test_an_outlook_says_when_the_next_may_start(self, calling):
        calling.store.report("relay", REFUSED)
        change(tokens=0.0, per_second=0.01, refilled=calling.store.now())
        host = calling.host()
        host.claim(30)
        due = calling.store.outlook([ONE, TWO, THREE], daemon=host.uuid).due
        assert 50 < due <= 100


class TestOpen:
    def test_failures_of_all_daemons_open_it(self, calling):
        for _ in range(2):
            row = calling.store.report("relay", Report(counts=((0.0, 0, 0, 5),), row=5), who="host")
        assert row.state == State.OPEN
        assert types(calling.host().claim(30)) == {THREE}

    def test_it_is_in_the_log(self, calling):
        calling.store.report("relay", ROW, who="host")
        record = LogRecord.objects.get(subject="downstream:relay")
        assert (record.kind, record.detail, record.who) == (Kind.DOWNSTREAM, "open", "host")

    def test_then_one_probes_over_all_daemons(self, calling):
        opened(calling)
        first, second = calling.host(), calling.host()
        claimed = [*first.claim(30), *second.claim(30), *first.claim(30)]
        [probe] = [task for task in claimed if task.type != THREE]
        assert probe.guard == "probe"
        assert (relay().state, relay().probe) == (State.HALF_OPEN, probe.instance)

    def test_while_a_daemon_holds_it_no_other_probes(self, calling):
        opened(calling)
        calling.host().claim(30)
        change(not_before=calling.store.now())
        assert calling.host().claim(30) == []

    def test_while_an_operator_has_paused_it_another_probes(self, calling):
        opened(calling)
        host = calling.host()
        [probe] = [task for task in host.claim(30) if task.guard]
        host.move(probe, Event.START)
        host.move(probe, Event.PAUSE)
        change(not_before=calling.store.now())
        [other] = calling.host().claim(30)
        assert (other.guard, relay().probe) == ("probe", other.instance)

    def test_when_its_daemon_is_lost_another_probes(self, calling):
        """G3."""
        opened(calling)
        first = calling.host()
        first.claim(30)
        change(not_before=calling.store.now())
        second = calling.host()
        assert second.claim(30) == []
        first.lose_lease()
        calling.store.sweep(daemon=second.uuid)
        claimed = [*second.claim(30), *second.claim(30)]
        assert [task.guard for task in claimed if task.type != THREE] == ["probe"]

    def test_a_probe_that_goes_well_lets_the_others_go(self, calling):
        opened(calling)
        host = calling.host()
        [probe] = [task for task in host.claim(30) if task.guard]
        row = calling.store.report("relay", Report(probe=(probe.instance, Verdict.OK)))
        assert (row.state, row.per_second) == (State.THROTTLED, 1.0)


class TestDeferred:
    def test_what_is_deferred_is_missed_when_its_time_is_over(self, world):
        """Nothing makes its start_before later."""
        world.store.register([registration(ONE, downstream="relay")])
        now = world.store.now()
        world.enqueue(1, start_before=now + timedelta(seconds=600))
        host = world.host()
        [task] = host.claim(1)
        host.move(task, Event.START)
        host.move(task, Event.DEFER, delay=timedelta(seconds=900))
        Task.objects.update(start_before=world.store.now())
        assert world.store.miss() == 1


class TestSetting:
    def test_a_ceiling_throttles_what_is_healthy(self, calling):
        row = calling.store.bound("relay", ceiling=5.0, who="ann")
        assert (row.state, row.per_second, row.who) == (State.THROTTLED, 5.0, "ann")

    def test_none_takes_it_away(self, calling):
        calling.store.bound("relay", ceiling=5.0)
        row = calling.store.bound("relay", ceiling=None)
        assert (row.state, row.per_second) == (State.CLOSED, 0.0)

    @pytest.mark.parametrize("verb", ["reset", "trip", "bound"])
    def test_what_somebody_else_has_changed_stays(self, calling, verb):
        more = {"ceiling": 5.0} if verb == "bound" else {}
        before = Downstream.objects.values().get()
        with pytest.raises(DownstreamChanged):
            getattr(calling.store, verb)("relay", expected="open", **more)
        assert Downstream.objects.values().get() == before

    def test_an_unknown_one_is_told(self, calling):
        with pytest.raises(UnknownDownstream, match="relay"):
            calling.store.trip("relais")

    def test_a_report_of_an_unknown_one_is_none(self, calling):
        assert calling.store.report("gone", ROW) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite has one writer: nothing waits for a row"
)
class TestLocked:
    def test_nothing_else_waits_for_who_keeps_a_row(self, calling):
        """G9: neither a claim of other Types, nor a report."""
        calling.store.report("relay", REFUSED)
        change(tokens=50.0, per_second=1000.0, refilled=calling.store.now())
        host = calling.host()
        with transaction.atomic():
            Downstream.objects.select_for_update().get(name="relay")
            assert types(Thread(host.claim, 30).result()) == {THREE}
            assert Thread(calling.store.report, "relay", ROW).result() is None
        assert types(host.claim(30)) <= {ONE, TWO}

    def test_while_it_is_closed_nobody_looks_for_the_lock(self, calling):
        host = calling.host()
        with transaction.atomic():
            Downstream.objects.select_for_update().get(name="relay")
            assert len(Thread(host.claim, 30).result()) == 30
