"""Gates, limits and shares as real daemons keep them."""

import random
import signal
import statistics
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection, transaction

from atp import queue
from atp.models import Instance, LogRecord, Task
from atp.operations import admission
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.app.tasks import echo
from tests.helpers import DEADLINE, Thread, child_environment, wait_for

from .scenario import on_postgresql


@pytest.mark.slow
def test_max_running_holds_while_workers_and_a_daemon_are_killed(atpd, record):
    """G3, G15: over two daemons that look seldom, and are told when there is room."""
    queue.limit("daemon.alone", max_running=1)
    types.alone.enqueue_many({"path": str(record), "seconds": 0.1} for _ in range(15))
    daemons = [atpd(processes=2, settings={"POLL_EVERY": 10}).ready(workers=2) for _ in range(2)]
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    times = [line["time"] for line in record.lines("start")]
    pauses = [after - before for before, after in pairwise(times)]
    assert statistics.median(pauses) < 3

    count = 100
    types.alone.enqueue_many({"path": str(record)} for _ in range(count))
    for done in range(35, count - 15, 12):
        record.wait_for("end", done)
        random.choice(daemons).kill_a_worker()
    daemons[0].signal(signal.SIGKILL)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    starts = record.lines("start")
    assert len(starts) >= 15 + count
    assert all(line["alone"] for line in starts)
    assert daemons[1].stop() == 0


def test_held_tasks_wait_and_dropped_tasks_fail_without_delaying_others(atpd, record):
    """G9."""
    queue.hold("daemon.note", "a", reason="maintenance")
    held = types.note.using(collection="a").enqueue_many({"path": str(record)} for _ in range(50))
    until = queue.hold("daemon.pid", until=timedelta(seconds=2)).until
    by_itself = types.pid.enqueue()
    queue.drop("daemon.noop", "spam", by="tests")
    spam = types.noop.using(collection="spam")
    spam.enqueue_many({} for _ in range(1200))
    daemon = atpd(processes=1).ready(workers=1)
    types.note.enqueue(path=str(record), number=7).wait(DEADLINE)
    assert by_itself.wait(DEADLINE).started >= until
    late = spam.enqueue().wait(DEADLINE)
    assert (late.state, late.reason) == (State.FAILED, Reason.DROPPED)
    wait_for(lambda: Instance.objects.filter(reason=Reason.DROPPED).count() == 1201)
    assert daemon.facts("dropped")
    assert LogRecord.objects.about("lane:daemon.noop/spam").get().who == "tests"
    assert Task.objects.waiting().count() == len(held)
    assert len(record.lines()) == 1
    queue.open_gate("daemon.note", "a")
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert daemon.stop() == 0


# ``max_waiting``


NAME = "tests.echo"
PROCESSES, MOST, ROOM = 3, 300, 270
# Enqueues until it is refused three times, each time after what it keeps is old.
SCRIPT = """
import sys, time, django
django.setup()
from atp.exceptions import QueueFull
from tests.app.tasks import echo
type, refused = echo.using(exact=sys.argv[1] == "exact"), 0
while refused < 3:
    try:
        type.enqueue()
    except QueueFull:
        refused += 1
        time.sleep(0.3)
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("how", [pytest.param("kept", marks=pytest.mark.long), "exact"])
def test_max_waiting_holds_for_many_processes(transactional_db, how):
    """Each exceeds it by what it enqueues between two looks; with ``exact`` none does."""
    queue.register_all()
    queue.limit(NAME, max_waiting=MOST)
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, how], env=child_environment())
        for _ in range(PROCESSES)
    ]
    assert [each.wait(10 * DEADLINE) for each in started] == [0] * PROCESSES
    over = queue.waiting(NAME) - ROOM
    assert 0 <= over <= (PROCESSES * (ROOM // admission.HEADROOM_PART) if how == "kept" else 0)


@on_postgresql
def test_exact_enqueue_takes_no_advisory_lock(transactional_db):
    """Any role that can connect can hold an advisory lock; a row needs a right on its table."""
    queue.register_all()
    queue.limit(NAME, max_waiting=MOST)
    with transaction.atomic(), connection.cursor() as cursor:
        echo.using(exact=True).enqueue()
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        assert cursor.fetchone() == (0,)
        # Enqueues that are not exact, and claims, do not wait for it.
        assert Thread(lambda: echo.enqueue().state).result() == "ACCEPTED"
