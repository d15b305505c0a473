"""What is complained of in the eager and immediate modes of other queues, and holds here.

Each test names the thread; the numbers are of celery/celery unless another is named.
"""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from atp import queue
from atp.exceptions import NotSerializable
from tests.app import tasks_testing as tasks
from tests.app.tasks import echo

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def test_arguments_are_serialized(atp):
    """4008: eager mode hands on the objects themselves."""
    given = ["as it was"]
    tasks.typed.enqueue(values=(1, 2), when=given)
    given.append("changed since")
    [run] = atp.drain()
    assert run.response == ["list", "list"]  # JSON has no tuples, and a test sees that
    assert run.instance.inputs.value["when"] == ["as it was"]
    with pytest.raises(NotSerializable):
        tasks.typed.enqueue(values=(object(),))


def test_a_response_is_serialized(atp):
    """4008: what cannot be stored is found in production only."""
    tasks.unserializable.enqueue()
    with pytest.raises(NotSerializable):
        atp.drain()
    assert atp.enqueued(tasks.unserializable)[0].reason == "FATAL"


def test_retries_are_attempts_of_their_own(atp):
    """4661: a retry within eager mode is a nested call, or none."""
    tasks.refused.enqueue()
    runs = atp.drain(raises=False, retries=True)
    assert [(run.attempt, run.state) for run in runs] == [
        (1, "ACCEPTED"),
        (2, "ACCEPTED"),
        (3, "FAILED"),
    ]


def test_results_are_stored(atp):
    """6476: results of eager mode are in no result backend."""
    row = echo.enqueue(a=1)
    atp.drain()
    assert queue.response(row).value == {"a": 1}
    assert queue.get(row.uuid).state == "FINISHED"


def test_the_way_is_that_of_a_daemon(atp):
    """2209: eager mode does something else, so it is not to be used in tests."""
    row = echo.enqueue(a=1)
    atp.drain()
    events = [record.event for record in row.log]
    assert events == ["enqueue", "claim", "start", "finish"]


def test_an_error_of_a_handler_does_not_reach_who_enqueues(atp):
    """2209: eager mode raises where the task is enqueued, if it is told to propagate."""
    with atp.inline(raises=False):
        row = tasks.refused.using(max_retries=0).enqueue()
    assert queue.get(row.uuid).reason == "ERROR"


def test_what_is_rolled_back_never_runs(atp):
    """Eager mode has run the task by then."""

    def place_order():
        with transaction.atomic():
            tasks.group.enqueue(name="never")
            raise RuntimeError("the order is refused")

    with atp.inline(), pytest.raises(RuntimeError):
        place_order()
    assert atp.drain() == []
    assert not Group.objects.exists()


def test_it_runs_after_the_block_that_enqueued_it(atp):
    """Eager mode runs in the middle of the block: it sees what is not yet written."""
    with atp.inline(), transaction.atomic():
        row = echo.enqueue(a=1)
        assert queue.get(row.uuid).state == "ACCEPTED"
    assert queue.get(row.uuid).state == "FINISHED"


def test_what_is_enqueued_on_commit_is_not_waited_for(atp, django_capture_on_commit_callbacks):
    """wagtail/wagtail: tests wait for ever for a commit that does not come."""
    with atp.inline(), django_capture_on_commit_callbacks(execute=True) as callbacks:
        transaction.on_commit(lambda: tasks.group.enqueue(name="a"))
    assert len(callbacks) == 1
    assert Group.objects.exists()


def test_a_delay_is_kept(atp):
    """coleifer/huey#384: in immediate mode delays and schedules mean nothing."""
    tasks.group.using(run_after=timedelta(hours=1)).enqueue(name="a")
    assert atp.drain() == []
    atp.later(hours=2)
    assert len(atp.drain()) == 1


def test_priorities_are_kept(atp):
    """coleifer/huey#384: in immediate mode the order is that of the calls."""
    for priority in (0, 10, 5):
        echo.using(priority=priority).enqueue(p=priority)
    assert [run.response["p"] for run in atp.drain()] == [10, 5, 0]


def test_gates_hold(atp):
    """coleifer/huey#384: what is revoked or paused runs all the same."""
    queue.hold("tests.echo")
    row = echo.enqueue(a=1)
    assert atp.drain() == []
    queue.cancel(row.uuid)
    queue.open_gate("tests.echo")
    assert atp.drain() == []
    assert queue.get(row.uuid).reason == "CANCELLED"


def test_a_job_of_a_test_is_no_job_of_the_queue(atp):
    """riverqueue/river#753: a worker under test was always inserted, beside others that wait."""
    other = tasks.group.enqueue(name="other")
    assert atp.work(tasks.group, name="own").state == "FINISHED"
    assert queue.get(other.uuid).state == "ACCEPTED"
    assert [group.name for group in Group.objects.all()] == ["own"]
