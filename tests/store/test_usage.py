"""The store contract: Usage has what daemons measured of their workers."""

from datetime import timedelta

import pytest
from django.forms import model_to_dict

from atp.models import Span, Usage
from atp.states import Event
from atp.store.counts import UsagePeriod

from ..helpers import open_transaction
from .broken import execute
from .test_statistics import Counting
from .world import DAY, HOUR, ONE, needs_row_locks

MINUTE = timedelta(minutes=1)
NUMBERS = {"capacity_us": 120_000_000, "busy_us": 60_000_000, "ended": 7, "memory": 2**26}


@pytest.fixture
def daemon(world):
    return Counting(world)


def measured(world, **numbers):
    minute = world.store.now().replace(second=0, microsecond=0)
    return UsagePeriod(start=minute, name="one:1", **NUMBERS | numbers)


def found():
    return [
        (row.daemon, {name: getattr(row, name) for name in NUMBERS})
        for row in Usage.objects.order_by("pk")
    ]


def test_usage_is_added_with_the_counts_of_a_daemon_in_one_statement(
    world, daemon, django_assert_max_num_queries
):
    with django_assert_max_num_queries(20) as without:
        assert daemon.add()
    daemon.adder.add_usage(measured(world))
    with django_assert_max_num_queries(len(without) + 1):
        assert daemon.add()
    assert model_to_dict(Usage.objects.get(), exclude=["id"]) == NUMBERS | {
        "span": Span.MINUTE,
        "start": measured(world).start,
        "daemon": daemon.host.uuid,
        "name": "one:1",
    }


def test_usage_is_kept_when_a_daemon_takes_another_identity(world, daemon):
    """Nobody else can count it, unlike the ends of attempts."""
    daemon.attempt(Event.FINISH)
    daemon.adder.add_usage(measured(world, ended=1))
    daemon.host.lose_lease()
    world.store.daemons.sweep()
    assert not daemon.add()
    daemon.adder.add_usage(measured(world, ended=2))
    daemon.host = world.host(name="one", old=daemon.host.uuid)
    daemon.adder.send(is_last=True)  # it fails, and nobody says whether the rows were added
    daemon.adder.restart(daemon.host.row.counted)
    assert daemon.add()
    assert found() == [(daemon.host.uuid, NUMBERS | {"ended": ended}) for ended in (1, 2)]


@pytest.mark.parametrize("has_new_identity", [False, True])
def test_what_was_added_is_not_added_again_if_the_call_fails_behind_it(
    world, daemon, has_new_identity
):
    daemon.adder.add_usage(measured(world))
    daemon.adder.add(world.store, daemon.host.uuid, daemon.adder.send(is_last=True))
    if has_new_identity:
        daemon.adder.restart(daemon.host.row.counted)
    else:
        daemon.adder.answered()
    assert daemon.add()
    assert found() == [(daemon.host.uuid, NUMBERS)]


@needs_row_locks
def test_usage_that_meets_a_lock_is_added_later(handing_world):
    """G11."""
    world, daemon = handing_world, Counting(handing_world)
    daemon.adder.add_usage(measured(world))
    with open_transaction(lambda: execute("LOCK TABLE atp_usage")):
        world.store.limit_waiting(0.1)
        assert not daemon.add()
        world.store.limit_waiting(0)
    assert daemon.add()
    assert found() == [(daemon.host.uuid, NUMBERS)]


def usage(start, daemon, **more):
    return Usage.objects.create(
        **{"span": Span.MINUTE, "start": start, "daemon": daemon.uuid, "name": "x:1"}
        | NUMBERS
        | more
    )


def test_old_minutes_of_usage_become_hours_and_old_hours_are_removed(world):
    one, two = world.host(ONE, name="one"), world.host(ONE, name="two")
    now = world.store.now()
    today = usage(now - HOUR, one)
    hour = (now - 3 * DAY).replace(minute=0, second=0, microsecond=0)
    for minute in range(4):
        usage(hour + minute * MINUTE, one, memory=minute)
        usage(hour + HOUR + minute * MINUTE, two)
    kept = usage(now - 80 * DAY, one, span=Span.HOUR)
    for days in (91, 92, 93):
        usage(now - days * DAY, one, span=Span.HOUR)
    portions = []
    while portion := world.store.statistics.fold_usage(now, 3):
        portions.append(portion)
    assert (sum(portions), max(portions)) == (4 + 4 + 3, 6)
    rows = Usage.objects.exclude(pk__in=[today.pk, kept.pk])
    assert {(row.span, row.start, row.daemon) for row in rows} == {
        (Span.HOUR, hour, one.uuid),
        (Span.HOUR, hour + HOUR, two.uuid),
    }
    for host, memory in ((one, 3), (two, 2**26)):
        own = rows.filter(daemon=host.uuid)
        for name in ("capacity_us", "busy_us", "ended"):
            assert sum(getattr(row, name) for row in own) == 4 * NUMBERS[name]
        assert max(row.memory for row in own) == memory
    assert Usage.objects.filter(pk__in=[today.pk, kept.pk]).count() == 2
