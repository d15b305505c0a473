"""What is claimed, what is left to others, and when a queue is empty."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from atp import queue
from atp.models import Instance, Limit, LogRecord, Task
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, stays, wait_for


def test_long_tasks_are_not_claimed_ahead(atpd, record, flag):
    """After many short tasks, long ones are not claimed and handed back over and over (G9)."""
    daemon = atpd(processes=2).ready(workers=2)
    for instance in types.noop.enqueue_many({} for _ in range(100)):
        instance.wait(DEADLINE)
    types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(60)
    )
    record.wait_for("start", 2)
    stays(lambda: not Instance.objects.filter(attempt__gt=2).exists(), 5)
    assert Task.objects.claimed().count() < 10
    flag.touch()
    wait_for(lambda: not Task.objects.exists())
    assert daemon.stop() == 0


def test_tasks_behind_a_long_one_go_to_another_daemon(atpd, record, flag):
    """What lies unstarted behind a task that has become long is handed back (G9, G15).

    And the token that it has taken of a rate with it.
    """
    queue.limit("daemon.wait", rate="1/h", burst=200)
    here = atpd(processes=1).ready(workers=1)
    short = {"path": str(record), "until": str(flag.parent)}
    for instance in types.wait.enqueue_many(short for _ in range(100)):
        instance.wait(DEADLINE)
    with transaction.atomic():
        long = types.wait.enqueue(path=str(record), until=str(flag))
        behind = types.wait.enqueue_many(short for _ in range(30))
    wait_for(lambda: long.refresh_from_db() or long.state == State.RUNNING)
    wait_for(lambda: LogRecord.objects.filter(kind="release").exists(), what="a release")
    there = atpd(processes=1).ready(workers=1)
    for instance in behind:
        instance.wait(DEADLINE)
    long.refresh_from_db()
    assert long.state == State.RUNNING
    assert Limit.objects.get().tokens == pytest.approx(200 - 131, abs=1)
    flag.touch()
    assert (here.stop(), there.stop()) == (0, 0)


def test_drain_goes_on_until_nothing_is_left(atpd, record):
    """A claim that finds only what is too late has not found the queue empty.

    Nor has one that is under way while a retry is recorded (G2).
    """
    soon = datetime.now(UTC) + timedelta(seconds=1)
    types.note.using(start_before=soon).enqueue_many(
        {"path": str(record), "number": n} for n in range(40)
    )
    due = [
        *types.note.enqueue_many({"path": str(record), "number": 100 + n} for n in range(5)),
        *types.again.enqueue_many({"times": 50} for _ in range(2)),
    ]
    wait_for(lambda: datetime.now(UTC) > soon)
    assert atpd("--drain", processes=3).wait(DEADLINE) == 0
    assert {i.state for i in due if i.refresh_from_db() is None} == {State.FINISHED}
    assert not Task.objects.exists()
