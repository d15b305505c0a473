"""Tests of the report on how busy the workers of daemons are."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from atp.models import Span, Usage
from atp.reports.statistics import SPANS, series, usage, utilisation_now

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]

NOW = datetime(2026, 5, 4, 12, 30, 30, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ONE, TWO = UUID(int=1), UUID(int=2)


def worked(ago, busy, *, daemon=ONE, capacity=120, span=Span.MINUTE, memory=0):
    """Write what two workers did in a period: ``busy`` and ``capacity`` are in seconds."""
    Usage.objects.create(
        span=span,
        start=NOW.replace(second=0) - ago,
        daemon=daemon,
        name="host:1",
        capacity_us=1_000_000 * capacity,
        busy_us=1_000_000 * busy,
        ended=10 * busy,
        memory=memory,
    )


def test_history_adds_up_the_daemons_or_has_one_of_them(django_assert_num_queries):
    worked(2 * MINUTE, 30, memory=5)
    worked(2 * MINUTE, 0, capacity=0, memory=9)
    worked(2 * MINUTE, 60, daemon=TWO)
    worked(HOUR, 1)
    with django_assert_num_queries(1):
        points = usage(HOUR, NOW)
    assert [point.begin for point in points] == [
        point.begin for point in series(None, HOUR, NOW).points
    ]
    point = points[-3]
    assert (point.capacity, point.busy, point.ended, point.memory) == (240, 90, 900, 9)
    assert [each.value for each in points if each.capacity] == [0.375]
    assert points[0].value is None
    assert [each.is_partial for each in points[-2:]] == [False, True]
    assert [each.value for each in usage(HOUR, NOW, daemon=TWO) if each.capacity] == [0.5]


def test_history_of_a_week_has_minutes_and_hours():
    worked(30 * MINUTE, 1800, span=Span.HOUR, capacity=7200)
    worked(30 * MINUTE, 30)
    worked(3 * 24 * HOUR + 30 * MINUTE, 3600, span=Span.HOUR, capacity=7200)
    points = usage(SPANS["7d"], NOW)
    assert len(points) == 168
    assert {point.begin: point.busy for point in points if point.busy} == {
        NOW.replace(minute=0, second=0): 1830,
        NOW.replace(minute=0, second=0) - 72 * HOUR: 3600,
    }


def test_utilisation_now_is_that_of_the_last_complete_minute(django_assert_num_queries):
    """A daemon that has just written nothing, for it renews in a moment, shows the one before."""
    worked(timedelta(), 1)
    worked(MINUTE, 90)
    worked(MINUTE, 31, capacity=0)
    worked(2 * MINUTE, 0)
    worked(2 * MINUTE, 60, daemon=TWO)
    worked(4 * MINUTE, 120, daemon=UUID(int=3))
    with django_assert_num_queries(1):
        found = utilisation_now(NOW)
    assert found == {ONE: 1.0, TWO: 0.5}
