"""Gates, limits and shares as real daemons keep them."""

import os
import random
import signal
import statistics
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from atp import queue
from atp.models import Instance, LogRecord, Task
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from .harness import Record


def kill_a_worker(daemon):
    pid = random.choice(wait_for(daemon.workers, what="a worker"))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_one_at_a_time_whatever_dies(atpd, record):
    """G3: ``max_running=1`` over two daemons, with workers and a daemon killed."""
    queue.limit("daemon.alone", max_running=1)
    count = 100
    types.alone.enqueue_many({"path": str(record)} for _ in range(count))
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    for done in range(20, count - 30, 12):
        record.wait_for("end", done)
        kill_a_worker(random.choice(daemons))
    daemons[0].signal(signal.SIGKILL)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    starts = record.lines("start")
    assert len(starts) >= count
    assert all(line["alone"] for line in starts)
    assert daemons[1].stop() == 0


def test_no_more_at_a_time_than_may_run_and_no_fewer_for_long(atpd, record):
    """G15: whoever is idle hears when there is room again."""
    queue.limit("daemon.alone", max_running=1)
    types.alone.enqueue_many({"path": str(record), "seconds": 0.1} for _ in range(15))
    rarely = {"POLL_EVERY": 10}
    daemons = [atpd(processes=1, settings=rarely).ready(workers=1) for _ in range(2)]
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    times = [line["time"] for line in record.lines("start")]
    pauses = [after - before for before, after in pairwise(times)]
    assert statistics.median(pauses) < 3
    assert all(line["alone"] for line in record.lines("start"))
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_one_at_a_time_of_each_collection_whatever_dies(atpd, tmp_path):
    """G3: over two daemons, with workers killed; and beside one that is full the others run."""
    queue.limit("daemon.alone", max_running_per_collection=1)
    records = {name: Record(tmp_path / f"of {name}.jsonl") for name in ("a", "b", "")}
    for name, record in records.items():
        of_lane = types.alone.using(collection=name)
        of_lane.enqueue_many({"path": str(record)} for _ in range(20))
    full = Record(tmp_path / "full")
    long = types.alone.using(collection="full", priority=5)
    long.enqueue_many({"path": str(full), "seconds": 600} for _ in range(5))
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    records["a"].wait_for("start", 3)
    for daemon in daemons:
        kill_a_worker(daemon)
    short = Task.objects.exclude(collection="full")
    wait_for(lambda: not short.exists(), what="the end of all but one collection")
    for record in records.values():
        assert len(record.lines("start")) >= 20
        assert all(line["alone"] for line in record.lines("start"))
    assert all(line["alone"] for line in full.lines("start"))
    for daemon in daemons:
        daemon.destroy()


def test_gates(atpd, record):
    """G9: what is held waits, and nothing beside it does; what is dropped fails."""
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
