"""The counts of the queue: what is live, what has ended, and which daemons have left."""

from datetime import timedelta

import pytest

from atp.models import Instance, Type
from atp.reports import overview
from atp.states import Reason, State
from atp.store import get_store

from .app.tasks import add, echo
from .populated import populate, world_in

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


def test_live_ones_are_counted_the_same_with_and_without_history(world):
    populate(world)
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


def test_history_counts_all_that_has_ended():
    ended(State.FINISHED)
    ended(State.FINISHED, ago=timedelta(days=400))
    failed(ago=timedelta(days=400))
    failed(Reason.MISSED)
    found = overview.overview()
    assert of_type(found, "tests.echo") == overview.TypeCounts(
        type="tests.echo", finished=2, failed=2, reasons={"ERROR": 1, "MISSED": 1}
    )
    assert found.since is None


def test_without_history_only_the_last_hour_and_the_newest_failures_are_counted(monkeypatch):
    """By Type and reason. What an operator drops or cancels is not counted as failed lately."""
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


def test_six_queries_however_many_types(django_assert_max_num_queries):
    echo.enqueue()
    add.enqueue(1)
    failed(type="tests.keyword")
    for history in (True, False):
        with django_assert_max_num_queries(6):
            found = overview.overview(history=history)
        assert len(found.types) == 3


def test_daemons_that_have_left_are_known_by_the_log(tmp_path):
    with world_in(tmp_path) as world:
        stopped, lost = world.host("tests.echo"), world.host("tests.echo")
        world.store.leave(stopped.uuid)
        lost.lose_lease()
        world.store.sweep()
        [last, first] = overview.departed_daemons()
        assert (first.uuid, first.was_lost) == (stopped.uuid, False)
        assert (last.uuid, last.was_lost) == (lost.uuid, True)
        assert overview.departed_daemons(lost.uuid) == [last]
        assert overview.departed_daemons(since=world.store.now() + timedelta(minutes=1)) == []
