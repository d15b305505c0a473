"""The estimated start of a Task: its bounds, its wording, and its accuracy with a real daemon."""

from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.models import Instance, Task
from atp.reports.explaining import explain, gathering, sentences
from atp.reports.explaining.facts import Estimate
from atp.reports.explaining.sentences import start_sentence
from atp.states import Event
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import wait_for

from ..app.tasks import add, echo

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def told(low, likely, high):
    return start_sentence(Estimate(low=low * SECOND, likely=likely * SECOND, high=high * SECOND))


def test_the_estimate_of_a_start_is_put_into_words():
    assert told(60, 120, 360) == "Starts in about 2 min (1 to 6)."
    assert told(7190, 7200, 7210) == "Starts in about 2 h."
    assert told(30, 120, 7200) == "Starts in about 2 min (30 s to 2 h)."
    assert "a cause must be resolved first" in start_sentence(Estimate(why="gate"))
    assert "none of its Type has ended recently" in start_sentence(Estimate(why="no-figures"))
    assert start_sentence(None) == ""


class TestBounds:
    def test_the_estimated_start_is_now_or_after_the_end_of_the_gate(self, scene):
        """A Task that will be dropped has no estimate."""
        one = echo.enqueue()
        found = queue.explain(one).starts
        assert found.low == timedelta(0)
        assert found.high < 10 * SECOND
        queue.hold("tests.echo", until=HOUR)
        found = queue.explain(one)
        assert found.starts.low >= found.reasons[0].until - found.looked_at
        queue.drop("tests.echo", until=HOUR)
        assert queue.explain(one).starts is None

    def test_the_estimate_is_later_with_more_tasks_ahead(self, scene):
        scene.run(3)
        Instance.objects.update(started=datetime(2020, 1, 1, tzinfo=UTC))
        first, *_, last = echo.enqueue_many([{}] * 50)
        scene.tell_workers(first)
        soon, late = queue.explain(first).starts, queue.explain(last).starts
        assert soon.likely < late.likely
        assert late.low <= late.likely <= late.high

    def test_the_estimate_has_no_upper_bound_beyond_the_count_limit(self, scene, monkeypatch):
        for module in (gathering, explain, sentences):
            monkeypatch.setattr(module, "MOST_COUNTED", 5)
        scene.run(3, SECOND)
        lane, *_, last = echo.enqueue_many([{}] * 10)
        aside = echo.using(collection="aside").enqueue()
        scene.tell_workers(lane)
        found = queue.explain(last).starts
        assert (found.likely, found.high, found.why) == (None, None, "many")
        assert start_sentence(found).startswith(
            f"Starts in {found.low.total_seconds():.1f} s at the earli"
        )
        found = queue.explain(aside).starts
        assert (found.high, found.why) == (None, "many")
        assert found.low <= found.likely
        assert "or later" in start_sentence(found)

    @pytest.mark.slow
    def test_a_limit_delays_the_start_despite_idle_workers(self, scene):
        """A limit set for the lane replaces the limit for each lane of the Type."""
        queue.limit("tests.echo", max_running_per_collection=1)
        scene.run(30, 60 * SECOND)
        first, *_, last = echo.using(collection="a").enqueue_many([{}] * 102)
        scene.starts(first)
        scene.tell_workers(first, count=20)
        assert queue.explain(last).starts.likely >= 90 * 60 * SECOND
        queue.limit("tests.echo", "a", max_running=20)
        assert queue.explain(last).starts.low < 30 * 60 * SECOND
        queue.limit("tests.echo", "a", max_running=1)
        assert queue.explain(last).starts.likely >= 90 * 60 * SECOND
        queue.limit("tests.echo", "a", max_running=None)
        queue.limit("tests.echo", max_running=1, max_running_per_collection=None)
        assert queue.explain(last).starts.high >= 90 * 60 * SECOND

    def test_waiting_time_of_cancelled_tasks_does_not_count_as_run_time(self, scene):
        scene.run(10, SECOND)
        one = echo.enqueue()
        scene.starts(one)
        scene.move(one, Event.RETRY, delay=10 * HOUR)
        Instance.objects.filter(pk=one.pk).update(started=get_store().now() - 5 * HOUR)
        queue.cancel(one)
        first = echo.enqueue()
        scene.starts(first)
        scene.tell_workers(first)
        *_, last = echo.enqueue_many([{}] * 10)
        assert queue.explain(last).starts.high < HOUR

    def test_explain_does_not_say_that_a_held_type_takes_turns(self, scene):
        add.enqueue(1)
        queue.hold("tests.add")
        first = echo.enqueue()
        scene.starts(first)
        scene.tell_workers(first)
        second = echo.enqueue()
        assert "turns with it" not in " ".join(r.sentence for r in queue.explain(second).reasons)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_four_of_five_starts_fall_within_their_estimate(atpd, record, tmp_path):
    """A daemon works through 1,000 Tasks of five Types; estimates made meanwhile are checked."""
    path = {"path": str(record)}
    loads = [
        (types.nap, {"seconds": 0.06, **path}),
        (types.alone, {"seconds": 0.03, **path}),
        (types.note, path),
        (types.noop, {}),
        (types.sequence_sum, {}),
    ]

    def feed(count):
        for type, inputs in loads:
            type.enqueue_many([inputs] * count)

    feed(200)
    foretold = {}
    daemon = atpd(processes=4)
    for left in (850, 550, 300, *20 * [300]):
        wait_for(lambda left=left: Task.objects.count() <= left)
        waiting = list(Task.objects.waiting().order_by("pk").values_list("instance__uuid"))
        for (uuid,) in waiting[:: max(1, len(waiting) // 30)]:
            found = queue.explain(uuid)
            if found.state == "ACCEPTED" and found.starts is not None:
                foretold[uuid] = found
        if left == 300 and len(foretold) >= 20:
            break
        if left == 300:  # on a slow machine most have started before anybody has asked
            feed(60)
    wait_for(lambda: not Task.objects.exists())
    daemon.stop()
    fits = []
    for uuid, found in foretold.items():
        took = queue.get(uuid).started - found.looked_at
        low, likely, high = found.starts
        fits.append(likely is not None and low <= took <= high)
    assert len(fits) >= 10
    assert sum(fits) >= 0.8 * len(fits), [
        (row.type.identifier, found.ahead, row.started - found.looked_at, *found.starts)
        for uuid, found in foretold.items()
        for row in [queue.get(uuid)]
    ]
