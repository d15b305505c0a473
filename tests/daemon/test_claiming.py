"""What is claimed, what is left to others, and when a queue is empty."""

from datetime import UTC, datetime, timedelta

from django.db import transaction

from atp.models import Instance, Task
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, stays, wait_for


def test_long_tasks_are_not_claimed_ahead(atpd, record, flag):
    """After many short tasks, long ones are not claimed and handed back over and over (G9)."""
    daemon = atpd(processes=2).ready(workers=2)
    for instance in types.noop.enqueue_many({} for _ in range(300)):
        instance.wait(DEADLINE)
    types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(200)
    )
    record.wait_for("start", 2)
    stays(lambda: not Instance.objects.filter(attempt__gt=2).exists(), 5)
    assert Task.objects.claimed().count() < 20
    flag.touch()
    wait_for(lambda: not Task.objects.exists())
    assert daemon.stop() == 0


def test_tasks_behind_a_long_one_go_to_another_daemon(atpd, record, flag):
    """What lies unstarted behind a task that has become long is handed back (G9, G15)."""
    here = atpd(processes=1).ready(workers=1)
    for instance in types.wait.enqueue_many(
        {"path": str(record), "until": str(flag.parent)} for _ in range(200)
    ):
        instance.wait(DEADLINE)
    with transaction.atomic():
        long = types.wait.enqueue(path=str(record), until=str(flag))
        short = types.wait.enqueue_many(
            {"path": str(record), "until": str(flag.parent)} for _ in range(30)
        )
    wait_for(lambda: long.refresh_from_db() or long.state == State.RUNNING)
    there = atpd(processes=1).ready(workers=1)
    for instance in short:
        instance.wait(DEADLINE)
    long.refresh_from_db()
    assert long.state == State.RUNNING
    flag.touch()
    assert (here.stop(), there.stop()) == (0, 0)


def test_workers_that_retire_are_not_failing(atpd, record):
    """--max-tasks-per-worker 1 with short tasks goes on at full speed (G15)."""
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(40))
    daemon = atpd("--max-tasks-per-worker", "1", processes=2)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert not daemon.facts("worker_failing")


def test_drain_goes_on_past_what_was_missed(atpd, record):
    """A claim that finds only what is too late has not found the queue empty."""
    soon = datetime.now(UTC) + timedelta(seconds=1)
    types.note.using(start_before=soon).enqueue_many(
        {"path": str(record), "number": n} for n in range(40)
    )
    due = types.note.enqueue_many({"path": str(record), "number": 100 + n} for n in range(5))
    wait_for(lambda: datetime.now(UTC) > soon)
    assert atpd("--drain", processes=2).wait() == 0
    assert {i.state for i in due if i.refresh_from_db() is None} == {State.FINISHED}
    assert not Task.objects.exists()


def test_drain_waits_for_what_is_due_again(atpd):
    """A claim under way while a retry is recorded does not end the drain (G2)."""
    instances = types.again.enqueue_many({"times": 200} for _ in range(2))
    assert atpd("--drain", processes=3).wait(DEADLINE) == 0
    assert {i.state for i in instances if i.refresh_from_db() is None} == {State.FINISHED}
