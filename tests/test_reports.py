"""Tests of reports: the overview, rates and quantiles, and the timeline of an Instance."""

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.forms import model_to_dict

from atp import queue
from atp.models import ALL_TYPES, BUCKETS, Daemon, Instance, Span, Statistic, Type, bucket_of
from atp.reports import documents, overview, statistics, timeline
from atp.states import Event, Reason, State
from atp.store import get_store
from atp.store.counts import Counts
from atp.templatetags.atp import drawn

from .app.tasks import echo
from .populated import Populated

pytestmark = pytest.mark.django_db


def ended(state, *, reason="", ago=timedelta(0), type="tests.echo"):
    now = get_store().now()
    return Instance.objects.create(
        type=Type.objects.get(identifier=type),
        state=state,
        reason=reason,
        created=now - ago,
        finished=now - ago,
    )


def failed(reason=Reason.ERROR, **more):
    return ended(State.FAILED, reason=reason, **more)


def of_type(found, identifier):
    [counts] = [counts for counts in found.types if counts.type == identifier]
    return counts


@pytest.mark.each_database
def test_live_instances_are_counted_alike_with_and_without_history(full):
    echo.enqueue_many({"n": n} for n in range(3))
    everything, recent = overview.overview(), overview.overview(history=False)
    live = ("due", "later", "scheduled", "running", "paused")
    for name in ("tests.add", "tests.echo"):
        assert [getattr(of_type(everything, name), count) for count in live] == [
            getattr(of_type(recent, name), count) for count in live
        ]
    assert [everything.total(count) for count in live] == [3, 1, 1, 1, 1]
    assert everything.oldest_due == recent.oldest_due
    assert everything.next_due == recent.next_due
    assert recent.oldest_due <= recent.time < recent.next_due


def test_overview_with_history_counts_all_ended_instances(django_assert_max_num_queries):
    """It takes six queries for any number of Types."""
    ended(State.FINISHED)
    ended(State.FINISHED, ago=timedelta(days=400))
    failed(ago=timedelta(days=400))
    failed(Reason.MISSED)
    failed(type="tests.keyword")
    with django_assert_max_num_queries(6):
        found = overview.overview()
    with django_assert_max_num_queries(6):
        overview.overview(history=False)
    assert len(found.types) == 2
    assert of_type(found, "tests.echo") == overview.TypeCounts(
        type="tests.echo", finished=2, failed=2, reasons={"ERROR": 1, "MISSED": 1}
    )
    assert found.since is None


def test_overview_without_history_counts_the_last_hour_and_newest_failures(monkeypatch):
    """Dropped and cancelled Instances are not counted in ``failed_lately``."""
    monkeypatch.setattr(overview, "MOST_ENDED", 2)
    monkeypatch.setattr(overview, "MOST_FAILED", 2)
    ended(State.FINISHED, type="tests.add")
    ended(State.FINISHED, ago=timedelta(minutes=61), type="tests.add")
    failed(ago=timedelta(minutes=59), type="tests.add")
    failed(Reason.MISSED, ago=timedelta(days=400), type="tests.add")
    for reason in (Reason.FATAL, *[Reason.DROPPED] * 3, Reason.CANCELLED):
        failed(reason)
    found = overview.overview(history=False)
    assert found.since == found.time - timedelta(hours=1)
    assert found.types == (
        overview.RecentCounts(
            type="tests.add",
            ended=2,
            failed=2,
            failed_lately=1,
            reasons={"ERROR": 1, "MISSED": 1},
        ),
        overview.RecentCounts(
            type="tests.echo",
            ended=2,
            ended_more=True,
            failed=4,
            failed_lately=1,
            reasons={"FATAL": 1, "DROPPED": 2, "CANCELLED": 1},
            more_of=frozenset({"DROPPED"}),
        ),
    )
    assert found.has("failed_more")
    assert not found.has("failed_lately_more")


def test_departed_daemons_are_read_from_the_log(world):
    stopped, lost = world.host("tests.echo"), world.host("tests.echo")
    world.store.daemons.leave(stopped.uuid)
    lost.lose_lease()
    seen = world.store.now().replace(microsecond=0) - timedelta(minutes=1)
    Daemon.objects.filter(uuid=lost.uuid).update(seen=seen)
    world.store.daemons.sweep()
    [last, first] = overview.departed_daemons()
    assert (first.uuid, first.was_lost) == (stopped.uuid, False)
    assert (last.uuid, last.was_lost) == (lost.uuid, True)
    assert last.seen == seen
    assert overview.departed_daemons(lost.uuid) == [last]
    assert overview.departed_daemons(since=world.store.now() + timedelta(minutes=1)) == []


NOW = datetime(2026, 5, 4, 12, 30, 30, tzinfo=UTC)
TYPE = "reports.one"


def count(minutes, **counts):
    start = NOW.replace(second=0) - timedelta(minutes=minutes)
    Statistic.objects.create(span=Span.MINUTE, start=start, type=TYPE, **counts)


def test_duration_is_in_the_bucket_of_its_power_of_two():
    places = {-5: 0, 0: 0, 999: 0, 1000: 1, 1999: 1, 2000: 2, 10**6: 10, 10**12: 23}
    assert {microseconds: bucket_of(microseconds) for microseconds in places} == places


def test_counting_runs_at_once_equals_counting_their_starts_and_their_finishes():
    """Some runs cross a minute, and some end before their start, as if a clock was set back."""
    at_once, apart, runs = Counts(), Counts(), []
    for number in range(200):
        began = NOW + timedelta(seconds=number)
        time = began + timedelta(seconds=5 - number % 7, milliseconds=number)
        type = f"reports.{number % 2}"
        runs.append((type, began, time, number / 10))
        apart.add(type, Event.START, began, waited=number / 10)
        apart.add(type, Event.FINISH, time, began=began)
    at_once.add_runs(runs)
    assert rows(at_once) == rows(apart)


def test_waiting_time_is_rounded_to_a_microsecond():
    """The log has whole microseconds; the difference of two times as floats may be less."""
    counts = Counts()
    for seconds in (math.nextafter(0.064, 0), 0.064):
        counts.add(TYPE, Event.START, NOW, waited=seconds)
        counts.add_runs([(TYPE, NOW, NOW, seconds)])
    assert all(row.wait[bucket_of(64_000)] == 4 for row in counts.rows())


def rows(counts):
    found = [model_to_dict(row) for row in counts.rows()]
    return sorted(found, key=lambda row: (row["start"], row["type"]))


@pytest.mark.each_database
def test_rates_include_complete_minutes_and_the_current_minute():
    """Without a complete minute, a rate over 60 s would fall to zero at each new minute."""
    assert statistics.start_rate(TYPE, now=NOW) == statistics.end_rate(TYPE, now=NOW) == 0.0
    count(0, started=30)
    count(1, finished=60, failed_error=20, failed_missed=10, retried=1000, lost=1000)
    count(4, started=240)
    count(5, started=10_000)
    # From 12:26:00 to 12:30:30.
    assert statistics.start_rate(TYPE, seconds=300, now=NOW) == pytest.approx(1.0)
    assert statistics.end_rate(TYPE, seconds=90, now=NOW) == pytest.approx(1.0)
    begun = NOW.replace(second=1)
    assert statistics.end_rate(TYPE, seconds=60, now=begun) == pytest.approx(90 / 61)


def test_quantiles_lie_within_their_buckets():
    assert statistics.quantiles(TYPE, "run", now=NOW) is None
    for figure, at in (("size", (0.5,)), ("run", (1.5,))):
        with pytest.raises(ValueError, match="is"):
            statistics.quantiles(TYPE, figure, at)
    count(1, run=[0, 0, 90], wait=[1])
    count(2, run=[0] * 10 + [10] + [0] * (BUCKETS - 11))
    half, most = statistics.quantiles(TYPE, "run", (0.5, 0.95), now=NOW)
    assert 0.002 <= half <= 0.004
    assert 0.512 <= most <= 1.024


@pytest.mark.each_database
def test_series_has_the_events_of_each_minute_of_an_hour(django_assert_num_queries):
    """FAILED Instances that are no dead letters are dropped ones."""
    count(0, finished=1)
    count(1, started=9, finished=2, retried=3, lost=4)
    count(1, failed_error=1, failed_stale=1, failed_missed=1, failed_upstream=2)
    count(59, finished=5, run=[0, 0, 90], wait=[0, 4])
    count(60, finished=1000)
    Statistic.objects.create(span=Span.MINUTE, start=NOW, type=ALL_TYPES, finished=1000)
    with django_assert_num_queries(1):
        found = statistics.series(TYPE, statistics.SPANS["1h"], NOW)
    assert (found.type, found.step, len(found.points)) == (TYPE, timedelta(minutes=1), 60)
    first, *_, one, last = found.points
    assert (first.begin, last.begin) == (
        NOW - timedelta(minutes=59, seconds=30),
        NOW - timedelta(seconds=30),
    )
    assert [(point.finished, point.is_partial) for point in (first, one, last)] == [
        *((5, False), (2, False), (1, True))
    ]
    assert (one.started, one.failed, one.dropped, one.retried, one.lost) == (9, 2, 3, 3, 4)
    assert 0.001 <= first.wait_p50 < first.wait_p95 <= 0.002 <= first.run_p50 < first.run_p99
    assert (one.wait_p95, one.run_p50) == (None, None)
    assert sum(point.finished for point in found.points) == 8


def test_all_types_together_are_read_from_their_own_rows_alone():
    count(1, finished=1)
    start = NOW.replace(second=0)
    Statistic.objects.create(span=Span.MINUTE, start=start, type=ALL_TYPES, finished=3, started=3)
    found = statistics.series(None, timedelta(minutes=1), NOW)
    assert [point.finished for point in found.points] == [3]
    assert list(statistics.sums()) == [TYPE]
    assert statistics.start_rate(ALL_TYPES, now=NOW) == 0.0


def test_series_has_at_most_288_points():
    steps = {name: statistics.series(TYPE, span, NOW) for name, span in statistics.SPANS.items()}
    assert {name: (len(s.points), s.step / timedelta(minutes=1)) for name, s in steps.items()} == {
        "1h": (60, 1),
        "6h": (180, 2),
        "24h": (288, 5),
        "7d": (168, 60),
    }
    for span in (timedelta(seconds=59), timedelta(days=13)):
        with pytest.raises(ValueError, match="it must be from a minute to 288 hours"):
            statistics.series(TYPE, span)


def test_series_spreads_counts_of_an_hour_over_its_points():
    """A series of a week has the counts of minutes and of hours together."""
    hour = NOW.replace(minute=0, second=0)
    Statistic.objects.create(span=Span.HOUR, start=hour, type=TYPE, finished=61, run=[600])
    found = statistics.series(TYPE, timedelta(minutes=30), hour + timedelta(minutes=29))
    assert [point.finished for point in found.points] == [1] * 30
    assert all(point.run_p50 is not None for point in found.points)
    later = statistics.series(TYPE, timedelta(minutes=30), hour + timedelta(minutes=59))
    assert sum(point.finished for point in later.points) == 31
    count(1, finished=4)
    week = statistics.series(TYPE, statistics.SPANS["7d"], NOW)
    assert [point.finished for point in week.points[-2:]] == [0, 65]


@pytest.fixture
def made(world, host):
    return Populated(world, host)


def test_timeline_separates_earlier_attempts_from_the_current_one(made):
    """An Instance that was cancelled between two attempts has no current attempt."""
    instance, move = made.claimed()
    move(Event.START)
    move(Event.RETRY)
    queue.cancel(instance)
    instance.refresh_from_db()
    # The start time of the Instance belongs to an attempt that ended long before.
    assert (instance.reason, instance.started is None) == (Reason.CANCELLED, False)
    now = instance.finished + timedelta(hours=2)
    assert timeline.attempt_duration(documents.instance(instance), now) is None
    failed = made.failed(Reason.FATAL)
    queue.redrive(failed)
    [case] = made.host.claim(limit=1)
    assert case.number == 2
    first, second = timeline.timeline(failed).attempts
    assert (first.number, first.event, second.number, second.ended) == (1, "fail", 2, None)
    assert "ValueError" in first.message


@pytest.mark.each_database
def test_timeline_shows_an_attempt_from_its_claim_to_its_end(made, monkeypatch):
    waiting = timeline.timeline(echo.enqueue())
    assert [(span.state, span.end) for span in waiting.spans] == [(State.ACCEPTED, None)]
    assert (waiting.attempts, waiting.is_whole) == ((), True)
    drawing = drawn(waiting, waiting.spans[0].begin + timedelta(seconds=100))
    assert drawing["whole"] == timedelta(seconds=100)
    assert [bar["width"] > 900 for bar in drawing["bars"]] == [True]  # drawn to scale
    instance, move = made.claimed()
    for event in (Event.START, Event.PAUSE, Event.RESUME, Event.FINISH):
        move(event)
    instance.refresh_from_db()
    line = timeline.timeline(instance)
    [attempt] = line.attempts
    assert (attempt.number, attempt.event, attempt.state) == (1, Event.FINISH, State.FINISHED)
    [pause] = [span for span in line.spans if span.state == State.PAUSED]
    assert attempt.ran == attempt.ended - attempt.started - (pause.end - pause.begin)
    assert attempt.who.startswith("host:")
    states = [span.state for span in line.spans]
    assert states == ["ACCEPTED", "SCHEDULED", "RUNNING", "PAUSED", "RUNNING"]
    assert all(before.end == after.begin for before, after in pairwise(line.spans))
    drawing = drawn(line, line.spans[0].begin + timedelta(seconds=100))
    bars = drawing["bars"]
    assert [bar["state"] for bar in bars] == states
    assert all(bar["width"] >= 3 and bar["x"] >= 0 for bar in bars)
    assert bars[-1]["x"] + bars[-1]["width"] <= drawing["width"]
    # A long history is cut at its beginning, so the claim is missing.
    monkeypatch.setattr(timeline, "MOST", 3)
    line = timeline.timeline(instance)
    assert (line.is_whole, line.attempts) == (False, ())
    assert [span.state for span in line.spans] == ["PAUSED", "RUNNING"]
