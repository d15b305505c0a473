"""``later()`` lets time pass for everything that waits for a time."""

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


def test_a_call_of_later_makes_a_dated_task_due_or_missed(atp):
    tasks.group.using(start_before=HOUR).enqueue(name="b")
    atp.later(hours=2)
    assert atp.drain() == []
    assert atp.enqueued(tasks.group)[0].reason == "MISSED"
    tasks.group.using(run_after=HOUR).enqueue(name="a")
    assert atp.drain() == []
    atp.later(minutes=59)
    assert atp.drain() == []
    atp.later(minutes=2)
    assert [run.state for run in atp.drain()] == ["FINISHED"]


def test_a_call_of_later_ends_a_sleep(atp):
    """The steps before the sleep are not repeated (G17)."""
    tasks.sleeper.enqueue()
    assert [run.state for run in atp.drain()] == ["ACCEPTED"]
    atp.later(hours=23)
    assert atp.drain() == []
    atp.later(hours=2)
    assert [(run.attempt, run.response) for run in atp.drain()] == [(2, "awake")]


def test_a_call_of_later_opens_an_expired_gate_and_refills_a_rate(atp):
    for name in "abc":
        tasks.group.enqueue(name=name)
    queue.hold("kit.group", until=get_store().now() + HOUR)
    queue.limit("kit.group", rate="1/h")
    assert atp.drain() == []
    for _ in "abc":
        atp.later(hours=2)
        assert len(atp.drain()) == 1


def test_a_call_of_later_lets_no_node_run_before_its_upstream(atp):
    """A node waits for its upstream however much time passes; its own due time does pass."""
    with public.Graph("of two") as graph:
        first = graph.add(tasks.group, name="first", inputs={"name": "a"})
        dated = tasks.group.using(run_after=HOUR)
        graph.add(dated, name="second", inputs={"name": "b"}, after=first)
    atp.later(days=10_000)
    runs = atp.drain(most=2)
    assert [run.instance.node.name for run in runs] == ["first", "second"]


def test_a_call_of_later_plans_the_slots_of_the_named_schedules(atp):
    """An unknown schedule is rejected, and no time passes."""
    queue.register(tasks.seen)
    queue.create_schedule("nightly", "kit.context", cron="30 2 * * *", missed="skip")
    nightly = queue.get_schedule("nightly")
    with pytest.raises(UnknownSchedule, match=r"'nihgtly'\. Did you mean 'nightly'\?"):
        atp.later(days=1, schedules=["nightly", "nihgtly"])
    assert atp.drain() == []
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


def test_a_call_of_later_moves_time_only_forward_and_changes_no_clock(atp):
    for given in ({}, {"hours": -1}):
        with pytest.raises(InvalidOption, match="must be greater than 0"):
            atp.later(**given)
    atp.later(days=1)
    assert get_store().now() - datetime.now(UTC) < HOUR
