"""Tests of :mod:`atp.reports.statistics`."""

from datetime import UTC, datetime, timedelta

import pytest
from django.forms import model_to_dict

from atp.models import Statistic
from atp.reports import statistics
from atp.rows.statistic import BUCKETS, Span, bucket
from atp.states import Event
from atp.store import get_store
from atp.store.counts import Counts

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 4, 12, 30, 30, tzinfo=UTC)
TYPE = "reports.one"


def add(minutes, **counts):
    start = NOW.replace(second=0) - timedelta(minutes=minutes)
    Statistic.objects.create(span=Span.MINUTE, start=start, type=TYPE, **counts)


@pytest.mark.parametrize(
    ("microseconds", "place"),
    [(-5, 0), (0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2), (10**6, 10), (10**12, 23)],
)
def test_a_duration_is_in_the_bucket_of_its_power_of_two(microseconds, place):
    assert bucket(microseconds) == place


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


def test_where_nothing_was_counted_the_rates_are_zero():
    assert statistics.start_rate(TYPE, now=NOW) == statistics.end_rate(TYPE, now=NOW) == 0.0


def test_the_rate_of_starts_is_over_closed_minutes_and_the_one_that_runs():
    add(0, started=30)
    add(4, started=240)
    add(5, started=10_000)
    # From 12:26:00 to 12:30:30.
    assert statistics.start_rate(TYPE, seconds=300, now=NOW) == pytest.approx(1.0)


def test_the_rate_of_ends_counts_what_leaves_the_queue():
    add(1, finished=60, failed_error=20, failed_missed=10, retried=1000, lost=1000)
    assert statistics.end_rate(TYPE, seconds=90, now=NOW) == pytest.approx(1.0)


def test_a_rate_of_a_minute_has_a_whole_one():
    """Else it would fall to zero at each new minute."""
    begun = NOW.replace(second=1)
    add(1, finished=61)
    assert statistics.end_rate(TYPE, seconds=60, now=begun) == pytest.approx(1.0)


def test_without_counts_there_are_no_quantiles():
    assert statistics.quantiles(TYPE, "run", now=NOW) is None


def test_quantiles_lie_within_the_buckets():
    add(1, run=[0, 0, 90], wait=[1])
    add(2, run=[0] * 10 + [10] + [0] * (BUCKETS - 11))
    half, most = statistics.quantiles(TYPE, "run", (0.5, 0.95), now=NOW)
    assert 0.002 <= half <= 0.004
    assert 0.512 <= most <= 1.024


def test_without_a_moment_the_time_is_that_of_the_database(monkeypatch):
    monkeypatch.setattr(type(get_store()), "now", lambda store: NOW)
    add(1, started=300, finished=300, run=[0, 0, 90])
    assert statistics.start_rate(TYPE) == statistics.start_rate(TYPE, now=NOW) > 0
    assert statistics.end_rate(TYPE) == statistics.end_rate(TYPE, now=NOW) > 0
    assert statistics.quantiles(TYPE, "run") is not None


@pytest.mark.parametrize(("figure", "at"), [("size", (0.5,)), ("run", (1.5,))])
def test_another_figure_or_quantile_is_refused(figure, at):
    with pytest.raises(ValueError, match="is"):
        statistics.quantiles(TYPE, figure, at)
