"""Rates and quantiles from the counts of minutes, and how runs are counted."""

from datetime import UTC, datetime, timedelta

import pytest
from django.forms import model_to_dict

from atp.models import BUCKETS, Span, Statistic, bucket_of
from atp.reports import statistics
from atp.states import Event
from atp.store.counts import Counts

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 4, 12, 30, 30, tzinfo=UTC)
TYPE = "reports.one"


def add(minutes, **counts):
    start = NOW.replace(second=0) - timedelta(minutes=minutes)
    Statistic.objects.create(span=Span.MINUTE, start=start, type=TYPE, **counts)


def test_a_duration_is_in_the_bucket_of_its_power_of_two():
    places = {-5: 0, 0: 0, 999: 0, 1000: 1, 1999: 1, 2000: 2, 10**6: 10, 10**12: 23}
    assert {microseconds: bucket_of(microseconds) for microseconds in places} == places


def test_a_run_counts_as_its_start_and_its_finish():
    """Within one minute, over its end, by a clock that was set back; of two Types."""
    at_once, apart = Counts(), Counts()
    for number in range(200):
        began = NOW + timedelta(seconds=number)
        time = began + timedelta(seconds=5 - number % 7, milliseconds=number)
        type = f"reports.{number % 2}"
        at_once.add_run(type, began, time, number / 10)
        apart.add(type, Event.START, began, waited=number / 10)
        apart.add(type, Event.FINISH, time, began=began)
    assert rows(at_once) == rows(apart)


def rows(counts):
    found = [model_to_dict(row) for row in counts.rows()]
    return sorted(found, key=lambda row: (row["start"], row["type"]))


def test_where_nothing_was_counted_the_rates_are_zero_and_there_are_no_quantiles():
    assert statistics.start_rate(TYPE, now=NOW) == statistics.end_rate(TYPE, now=NOW) == 0.0
    assert statistics.quantiles(TYPE, "run", now=NOW) is None
    for figure, at in (("size", (0.5,)), ("run", (1.5,))):
        with pytest.raises(ValueError, match="is"):
            statistics.quantiles(TYPE, figure, at)


def test_rates_are_over_closed_minutes_and_the_one_that_runs():
    """A rate of a minute has a whole one: else it would fall to zero at each new minute."""
    add(0, started=30)
    add(1, finished=60, failed_error=20, failed_missed=10, retried=1000, lost=1000)
    add(4, started=240)
    add(5, started=10_000)
    # From 12:26:00 to 12:30:30.
    assert statistics.start_rate(TYPE, seconds=300, now=NOW) == pytest.approx(1.0)
    assert statistics.end_rate(TYPE, seconds=90, now=NOW) == pytest.approx(1.0)
    begun = NOW.replace(second=1)
    assert statistics.end_rate(TYPE, seconds=60, now=begun) == pytest.approx(90 / 61)


def test_quantiles_lie_within_the_buckets():
    add(1, run=[0, 0, 90], wait=[1])
    add(2, run=[0] * 10 + [10] + [0] * (BUCKETS - 11))
    half, most = statistics.quantiles(TYPE, "run", (0.5, 0.95), now=NOW)
    assert 0.002 <= half <= 0.004
    assert 0.512 <= most <= 1.024
