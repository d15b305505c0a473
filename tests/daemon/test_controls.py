"""Gates, limits and shares as real daemons keep them."""

import os
import random
import signal
import statistics
import time
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection, transaction

from atp import queue
from atp.models import Daemon, Instance, Limit, LogRecord, Task
from atp.states import Reason, State
from tests import patience
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, Thread, stays, wait_for

PROCESSES = 2


def kill_a_worker(daemon):
    pid = random.choice(wait_for(daemon.workers, what="a worker"))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_one_at_a_time_whatever_dies(atpd, record):
    """G3: ``max_running=1`` over three daemons, with workers and a daemon killed."""
    queue.limit("daemon.alone", max_running=1)
    count = 150
    types.alone.enqueue_many({"path": str(record)} for _ in range(count))
    daemons = [atpd(processes=PROCESSES).ready(workers=PROCESSES) for _ in range(3)]
    for done in range(20, count - 30, 15):
        record.wait_for("end", done)
        kill_a_worker(random.choice(daemons))
    daemons[0].signal(signal.SIGKILL)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    starts = record.lines("start")
    assert len(starts) >= count
    assert all(line["alone"] for line in starts)
    assert [daemon.stop() for daemon in daemons[1:]] == [0, 0]


def test_no_more_at_a_time_than_may_run_and_no_fewer_for_long(atpd, record):
    """G15: whoever is idle hears when there is room again."""
    queue.limit("daemon.alone", max_running=1)
    types.alone.enqueue_many({"path": str(record), "seconds": 0.1} for _ in range(30))
    rarely = {"POLL_EVERY": 10}
    daemons = [atpd(processes=1, settings=rarely).ready(workers=1) for _ in range(2)]
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    times = [line["time"] for line in record.lines("start")]
    pauses = [after - before for before, after in pairwise(times)]
    assert statistics.median(pauses) < 3
    assert all(line["alone"] for line in record.lines("start"))
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_a_rate_over_all_daemons(atpd, record):
    queue.limit("daemon.note", rate="20/s", burst=2)
    daemons = [atpd(processes=1).ready(workers=1) for _ in range(2)]
    types.note.enqueue_many({"path": str(record)} for _ in range(400))
    record.wait_for("ran", 1)
    began = time.monotonic()
    record.wait_for("ran", 100)
    queue.hold("daemon.note")
    passed = time.monotonic() - began
    assert len(record.lines("ran")) <= 2 + 20 * (passed + 1)
    assert passed < 100 / 20 * 4
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_what_is_handed_back_unstarted_gives_its_token_back(atpd, record, flag):
    """A daemon has claimed ahead, and stops."""
    queue.limit("daemon.wait", rate="1/h", burst=300)
    daemon = atpd(processes=1).ready(workers=1)
    short = {"path": str(record), "until": str(flag.parent)}
    for instance in types.wait.enqueue_many(short for _ in range(200)):
        instance.wait(DEADLINE)
    with transaction.atomic():
        long = types.wait.enqueue(path=str(record), until=str(flag))
        types.wait.enqueue_many(short for _ in range(30))
    # The one that became long is in front of what was claimed with it.
    wait_for(lambda: Instance.objects.get(pk=long.pk).state == State.RUNNING)
    wait_for(lambda: LogRecord.objects.filter(kind="release").exists())
    wait_for(lambda: Limit.objects.get().tokens > 90)
    flag.touch()
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert Limit.objects.get().tokens == pytest.approx(300 - 231, abs=1)
    assert daemon.stop() == 0


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one writer")
def test_a_limit_that_somebody_keeps_locked_holds_up_its_type_only(atpd, record):
    """G9: for longer than a daemon would keep a task that it cannot renew; nobody is charged."""
    queue.limit("daemon.noop", max_running=5, rate="1000/s")
    quick = {"KILL_AFTER": 6, "LEASE": 9, "RENEW_EVERY": 1, "STATEMENT_TIMEOUT": 4}
    daemons = [atpd(processes=1, settings=quick).ready(workers=1) for _ in range(2)]
    types.noop.enqueue().wait(DEADLINE)
    before = {row.uuid for row in Daemon.objects.all()}
    with transaction.atomic():
        queue.limit("daemon.noop", max_running=6)
        began = time.monotonic()
        waiting = Thread(lambda: types.noop.enqueue_many({} for _ in range(20))).result()
        waits = []
        while time.monotonic() < began + patience.scaled(quick)["KILL_AFTER"] + 2:
            one = Thread(lambda: types.note.enqueue(path=str(record)).wait(DEADLINE)).result(60)
            waits.append((one.started - one.created).total_seconds())
        assert statistics.median(waits) < 2 * patience.factor()
        assert Thread(Task.objects.waiting().count).result() == 20
    for instance in waiting:
        assert instance.wait(DEADLINE).attempt == 1
    assert {row.uuid for row in Daemon.objects.all()} == before
    assert not any(daemon.facts("database_slow") for daemon in daemons)
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_what_is_held_waits_until_it_is_opened(atpd, record):
    """G9: and nothing beside it does."""
    queue.hold("daemon.note", "a", reason="maintenance")
    held = types.note.using(collection="a").enqueue_many({"path": str(record)} for _ in range(50))
    daemon = atpd(processes=1).ready(workers=1)
    types.note.enqueue(path=str(record), number=7).wait(DEADLINE)
    stays(lambda: Task.objects.waiting().count() == len(held), 1.5)
    queue.open_gate("daemon.note", "a")
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert daemon.stop() == 0


def test_a_gate_opens_by_itself(atpd, record):
    gate = queue.hold(until=timedelta(seconds=2))
    daemon = atpd(processes=1).ready(workers=1)
    one = types.note.enqueue(path=str(record)).wait(DEADLINE)
    assert one.started >= gate.until
    assert daemon.stop() == 0


def test_what_is_dropped_fails(atpd, record):
    queue.drop("daemon.note", "spam", by="tests")
    spam = types.note.using(collection="spam")
    spam.enqueue_many({"path": str(record)} for _ in range(1200))
    daemon = atpd(processes=1).ready(workers=1)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    late = spam.enqueue(path=str(record)).wait(DEADLINE)
    assert (late.state, late.reason) == (State.FAILED, Reason.DROPPED)
    assert Instance.objects.filter(reason=Reason.DROPPED).count() == 1201
    assert record.lines() == []
    assert daemon.facts("dropped")
    assert daemon.stop() == 0
    assert LogRecord.objects.about("lane:daemon.note/spam").get().who == "tests"
