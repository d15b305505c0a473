"""Downstreams in the stores: who claims what while one refuses calls or fails."""

from dataclasses import replace

import pytest
from django.db import transaction

from atp.downstreams.protection import Report, State, Verdict
from atp.exceptions import DownstreamChanged, UnknownDownstream
from atp.models import Downstream, Kind, LogRecord

from ..helpers import Thread
from .world import HOUR, ONE, THREE, TWO, needs_row_locks, registration

ROW = Report(counts=((0.0, 0, 0, 10),), row=10)
REFUSED = Report(counts=((1.0, 10, 1, 0),), had_ok=True)


@pytest.fixture
def calling(world):
    """Two Types that call one downstream, and one that calls none; of each ten wait."""
    world.store.types.register([registration(name, downstream="relay") for name in (ONE, TWO)])
    for name in (ONE, TWO, THREE):
        world.enqueue(10, type=name)
    return world


def relay():
    return Downstream.objects.get(name="relay")


def change(**columns):
    Downstream.objects.filter(name="relay").update(**columns)


def types(claimed):
    return {task.type for task in claimed}


def test_registering_makes_the_row_closed_and_leaves_it_as_it_is(calling):
    before = Downstream.objects.values().get()
    assert before["state"] == State.CLOSED
    assert [task.guard for task in calling.host().claim(30)] == [""] * 30
    assert Downstream.objects.values().get() == before
    calling.store.downstreams.trip("relay")
    calling.store.types.register([registration(ONE, downstream="relay", max_retries=9)])
    assert relay().state == State.OPEN


def test_as_many_are_claimed_as_there_are_tokens_over_its_types(calling):
    """And an outlook says when the next may start; nothing is before it is asked for again."""
    calling.store.downstreams.report("relay", REFUSED)
    change(tokens=3.0, per_second=0.01, refilled=calling.store.now())
    first, second = calling.host(), calling.host()
    claimed = [*first.claim(30), *first.claim(30), *second.claim(30)]
    protected = [task.guard for task in claimed if task.type != THREE]
    assert (protected, len(claimed)) == (["rate"], 11)  # no more than the burst
    due = calling.store.daemons.outlook([ONE, TWO, THREE], daemon=first.uuid).due
    assert 50 < due <= 100
    change(tokens=3.0, refilled=calling.store.now())
    calling.store.downstreams.report("relay", replace(REFUSED, after=600.0))
    assert first.claim(30) == []


def test_failures_of_all_daemons_open_it(calling):
    for _ in range(2):
        report = Report(counts=((0.0, 0, 0, 5),), row=5)
        row = calling.store.downstreams.report("relay", report, who="host")
    assert row.state == State.OPEN
    # However long the claim takes to come.
    change(not_before=calling.store.now() + HOUR)
    assert types(calling.host().claim(30)) == {THREE}
    record = LogRecord.objects.get(subject="downstream:relay")
    assert (record.kind, record.detail, record.who) == (Kind.DOWNSTREAM, "open", "host")


def test_one_probes_over_all_daemons_and_another_when_its_daemon_is_lost(calling):
    """G3: and if it goes well the others go, too."""
    calling.store.downstreams.trip("relay")
    change(not_before=calling.store.now())
    first, second = calling.host(), calling.host()
    claimed = [*first.claim(30), *second.claim(30), *first.claim(30)]
    [probe] = [task for task in claimed if task.type != THREE]
    assert probe.guard == "probe"
    assert (relay().state, relay().probe) == (State.HALF_OPEN, probe.instance)
    change(not_before=calling.store.now())
    assert second.claim(30) == []
    first.lose_lease()
    calling.store.daemons.sweep(daemon=second.uuid)
    claimed = [*second.claim(30), *second.claim(30)]
    [probe] = [task for task in claimed if task.type != THREE]
    assert probe.guard == "probe"
    row = calling.store.downstreams.report("relay", Report(probe=(probe.instance, Verdict.OK)))
    assert (row.state, row.per_second) == (State.THROTTLED, 1.0)


def test_a_ceiling_throttles_what_is_healthy_and_none_takes_it_away(calling):
    row = calling.store.downstreams.bound("relay", ceiling=5.0, who="ann")
    assert (row.state, row.per_second, row.who) == (State.THROTTLED, 5.0, "ann")
    row = calling.store.downstreams.bound("relay", ceiling=None)
    assert (row.state, row.per_second) == (State.CLOSED, 0.0)


def test_what_somebody_else_has_changed_stays_and_an_unknown_one_is_told(calling):
    before = Downstream.objects.values().get()
    for verb, more in {"reset": {}, "trip": {}, "bound": {"ceiling": 5.0}}.items():
        with pytest.raises(DownstreamChanged):
            getattr(calling.store.downstreams, verb)("relay", expected="open", **more)
    with pytest.raises(UnknownDownstream, match="relay"):
        calling.store.downstreams.trip("relais")
    assert calling.store.downstreams.report("gone", ROW) is None
    assert Downstream.objects.values().get() == before


@pytest.mark.django_db(transaction=True)
@needs_row_locks
def test_nothing_else_waits_for_who_keeps_a_row(calling):
    """G9: neither a claim of other Types, nor a report."""
    calling.store.downstreams.report("relay", REFUSED)
    change(tokens=50.0, per_second=1000.0, refilled=calling.store.now())
    host = calling.host()
    with transaction.atomic():
        Downstream.objects.select_for_update().get(name="relay")
        assert types(Thread(host.claim, 30).result()) == {THREE}
        assert Thread(calling.store.downstreams.report, "relay", ROW).result() is None
    assert types(host.claim(30)) <= {ONE, TWO}
