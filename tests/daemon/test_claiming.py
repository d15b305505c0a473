"""What is claimed, what is left to others, and when a queue is empty."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from atp import queue
from atp.models import Daemon, Instance, Limit, LogRecord, Task
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, stays, wait_for

from .scenario import wait_until


def test_long_tasks_are_not_claimed_ahead(atpd, record, flag):
    """G9: after many short tasks, long ones are not claimed and handed back again and again."""
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
    """G9, G15: and the rate limit gets their tokens back."""
    queue.limit("daemon.wait", rate="1/h", burst=200)
    here = atpd(processes=1).ready(workers=1)
    short = {"path": str(record), "until": str(flag.parent)}
    for instance in types.wait.enqueue_many(short for _ in range(100)):
        instance.wait(DEADLINE)
    with transaction.atomic():
        long = types.wait.enqueue(path=str(record), until=str(flag))
        behind = types.wait.enqueue_many(short for _ in range(30))
    wait_until(State.RUNNING, long)
    wait_for(lambda: LogRecord.objects.filter(kind="release").exists(), what="a release")
    there = atpd(processes=1).ready(workers=1)
    for instance in behind:
        instance.wait(DEADLINE)
    long.refresh_from_db()
    assert long.state == State.RUNNING
    assert Limit.objects.get().tokens == pytest.approx(200 - 131, abs=1)
    flag.touch()
    assert (here.stop(), there.stop()) == (0, 0)


def test_drain_ends_only_when_nothing_is_left_of_the_served_types(atpd, record):
    """G2: not if a claim finds only missed Tasks, nor while a retry is recorded."""
    soon = datetime.now(UTC) + timedelta(seconds=1)
    types.note.using(start_before=soon).enqueue_many(
        {"path": str(record), "number": n} for n in range(40)
    )
    due = [
        *types.note.enqueue_many({"path": str(record), "number": 100 + n} for n in range(5)),
        *types.again.enqueue_many({"times": 50} for _ in range(2)),
    ]
    others = [types.noop.enqueue(), types.sequence_sum.enqueue(1)]
    wait_for(lambda: datetime.now(UTC) > soon)
    daemon = atpd("--drain", "--type", "daemon.*", "--exclude", "*.noop", processes=3)
    assert daemon.wait() == 0
    assert {i.state for i in due if i.refresh_from_db() is None} == {State.FINISHED}
    assert set(record.numbers("ran").values()) == {1}
    assert daemon.facts("daemon_stopped")[0]["finished"] == len(due)
    assert not Daemon.objects.exists()
    assert {i.state for i in others if i.refresh_from_db() is None} == {State.ACCEPTED}
    assert Task.objects.count() == len(others)
