"""Time that a test lets pass, for all that waits for a time."""

from datetime import UTC, datetime, timedelta

import pytest

import atp as public
from atp import queue
from atp.exceptions import InvalidOption, UnknownSchedule
from atp.models import Slot
from atp.store import get_store
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def test_what_is_dated_is_due(atp):
    tasks.group.using(run_after=HOUR).enqueue(name="a")
    assert atp.drain() == []
    atp.later(minutes=59)
    assert atp.drain() == []
    atp.later(minutes=2)
    assert [run.state for run in atp.drain()] == ["FINISHED"]


def test_what_is_too_late_is_missed(atp):
    tasks.group.using(start_before=HOUR).enqueue(name="a")
    atp.later(hours=2)
    assert atp.drain() == []
    assert atp.enqueued(tasks.group)[0].reason == "MISSED"


def test_a_sleep_is_over(atp):
    """G17: the steps before it are not repeated."""
    tasks.sleeper.enqueue()
    assert [run.state for run in atp.drain()] == ["ACCEPTED"]
    atp.later(hours=23)
    assert atp.drain() == []
    atp.later(hours=2)
    assert [(run.attempt, run.response) for run in atp.drain()] == [(2, "awake")]


def test_a_gate_opens_by_itself(atp):
    tasks.group.enqueue(name="a")
    queue.hold("kit.group", until=get_store().now() + HOUR)
    assert atp.drain() == []
    atp.later(hours=2)
    assert len(atp.drain()) == 1


def test_a_rate_is_refilled(atp):
    queue.register(tasks.group)
    queue.limit("kit.group", rate="1/h")
    for name in "ab":
        tasks.group.enqueue(name=name)
    assert len(atp.drain()) == 1
    atp.later(hours=2)
    assert len(atp.drain()) == 1


def test_a_node_of_a_graph_waits_for_another(atp):
    """That is no time; only its own time comes earlier."""
    with public.Graph("of two") as graph:
        first = graph.add(tasks.group, name="first", inputs={"name": "a"})
        dated = tasks.group.using(run_after=HOUR)
        graph.add(dated, name="second", inputs={"name": "b"}, after=first)
    atp.later(days=10_000)
    runs = atp.drain(most=2)
    assert [run.instance.node.name for run in runs] == ["first", "second"]


@pytest.fixture
def nightly():
    queue.register(tasks.seen)
    queue.create_schedule("nightly", "kit.context", cron="30 2 * * *", missed="skip")
    return queue.get_schedule("nightly")


def test_slots_come_in_their_time(atp, nightly):
    half = (nightly.next_at - get_store().now()).total_seconds() / 2
    atp.later(seconds=half, schedules=["nightly"])
    assert atp.drain() == []
    atp.later(seconds=half + 1800, schedules=["nightly"])
    assert [run.state for run in atp.drain()] == ["FINISHED"]
    atp.later(days=1)
    assert atp.drain() == []
    atp.later(days=3, schedules="nightly")
    assert len(atp.drain()) == 3
    slots = Slot.objects.order_by("at")
    assert [slot.outcome for slot in slots] == ["ENQUEUED"] * 4
    assert slots[0].at == nightly.next_at


def test_no_time_passes_for_a_schedule_that_is_not_there(atp, nightly):
    tasks.group.using(run_after=HOUR).enqueue(name="a")
    with pytest.raises(UnknownSchedule, match=r"'nihgtly'\. Did you mean 'nightly'\?"):
        atp.later(days=1, schedules=["nightly", "nihgtly"])
    assert atp.drain() == []


def test_time_goes_forward_and_no_clock_is_moved(atp):
    for given in ({}, {"hours": -1}):
        with pytest.raises(InvalidOption, match="must be more than nothing"):
            atp.later(**given)
    atp.later(days=1)
    assert get_store().now() - datetime.now(UTC) < HOUR
