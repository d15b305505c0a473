"""Daemons stop in order (G10), and several of them share the work (G3)."""

import signal
import subprocess
import sys
from collections import Counter

import pytest
from django.db import transaction

from atp import queue
from atp.models import Daemon, Instance, LogRecord, Task
from atp.rows.log import Kind
from atp.states import State
from atp.words import attempt_messages
from tests.app import tasks_daemon as types
from tests.app import tasks_transactional as transactional
from tests.helpers import DEADLINE, child_environment, wait_for

from ..nonsense import tells
from .harness import is_alive, story


def test_running_tasks_finish_within_grace(atpd, record, flag):
    """SIGTERM during work: exit 0, what runs finishes, what waits is not touched (G10)."""
    running = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "20", processes=1)
    record.wait_for("start")
    waiting = types.note.enqueue(path=str(record))
    daemon.signal()
    daemon.wait_for_fact("daemon_stopping")
    flag.touch()
    assert daemon.wait() == 0
    assert running.wait(0).state == State.FINISHED
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempt) == (State.ACCEPTED, 0)
    assert Daemon.objects.count() == 0
    started, stopped = LogRecord.objects.filter(instance=None, subject__startswith="daemon:")
    assert (started.kind, stopped.kind) == (Kind.STARTED, Kind.LEFT)


def test_tasks_past_grace_are_handed_back(atpd, record, flag):
    """What does not finish within its grace is handed back, no budget charged (G10)."""
    stubborn = types.stubborn.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "0.5", processes=1)
    [line] = record.wait_for("start")
    assert daemon.stop() == 0
    assert not is_alive(line["pid"])
    stubborn.refresh_from_db()
    assert stubborn.state == State.ACCEPTED
    assert (stubborn.restarts, stubborn.retries, stubborn.lost) == (0, 0, 0)
    assert story(stubborn)[-1] == "release→ACCEPTED 1"
    assert tells(stubborn.log.last().message, attempt_messages.daemon_stopping())
    assert Task.objects.get().daemon is None


def test_handler_may_clean_up_past_grace(atpd, record, flag):
    """A handler that checks is interrupted before it is killed."""
    types.interrupted.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "0.1", processes=1)
    record.wait_for("start")
    assert daemon.stop() == 0
    assert [line["event"] for line in record.lines()] == ["start", "cleaned up"]


def test_second_signal_stops_at_once(atpd, record, flag):
    """A second signal ends the grace (G10)."""
    instance = types.stubborn.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "6000", processes=1)
    record.wait_for("start")
    daemon.signal()
    daemon.wait_for_fact("daemon_stopping")
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0
    instance.refresh_from_db()
    assert (instance.state, instance.lost) == (State.ACCEPTED, 0)


# Its exit deletes the object, which signals it, when Python has given up its handlers of signals.
SIGNALLED_IN_ITS_EXIT = """
import os, signal, sys
from django.core.management import execute_from_command_line

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)

sys.last = Last()
execute_from_command_line(["manage.py", "atpd", "-p", "1"])
"""


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_signal_while_it_exits():
    """G10: its status is 0 nevertheless."""
    command = [sys.executable, "-c", SIGNALLED_IN_ITS_EXIT]
    with subprocess.Popen(command, env=child_environment(), stderr=subprocess.DEVNULL) as daemon:
        wait_for(Daemon.objects.filter(idle=True).exists, DEADLINE)
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0


WOKEN_IN_ITS_EXIT = """
import atexit, signal
from django.core.management import execute_from_command_line

atexit.register(lambda: print("woken:", signal.set_wakeup_fd(-1)))
execute_from_command_line(["manage.py", "atpd", "--drain", "-p", "1"])
"""


@pytest.mark.processes
def test_nobody_is_woken_by_signals_while_it_exits(transactional_db):
    """Else Python would complain of a child that ends when the supervisor's socket is closed."""
    command = [sys.executable, "-c", WOKEN_IN_ITS_EXIT]
    given = {"capture_output": True, "text": True, "timeout": DEADLINE, "check": True}
    done = subprocess.run(command, env=child_environment(), **given)
    assert done.stdout.endswith("woken: -1\n")


def test_two_daemons_run_each_task_once(atpd, record, flag):
    """Two daemons of two processes, 2,000 short tasks: each executed exactly once (G3)."""
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    # All four workers are at work when the others come. Who then gets how many is
    # not promised: SQLite lets whoever asks first write first.
    types.wait.enqueue_many({"path": str(record), "until": str(flag)} for _ in range(4))
    assert len({line["pid"] for line in record.wait_for("start", 4)}) == 4
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(2000))
    flag.touch()
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert all(daemon.stop() == 0 for daemon in daemons)
    ran = record.numbers("ran")
    assert len(ran) == 2000
    assert set(ran.values()) == {1}
    assert Instance.objects.filter(state=State.FINISHED).count() == 2004
    assert not Instance.objects.exclude(lost=0, restarts=0).exists()


def test_release_of_a_running_task(atpd, record, flag):
    """RFC 14's re-enqueue of a live task: its holder hands it back, and it runs again."""
    instance = types.interrupted.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("start")
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    assert queue.release(instance, by="operator via shell") is True
    record.wait_for("start", 2)
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert (instance.restarts, instance.lost) == (0, 0)
    asked = instance.log.get(kind=Kind.ASK, detail="release")
    assert asked.who == "operator via shell"


def test_release_kills_what_does_not_listen(atpd, record, flag):
    instance = types.stubborn.enqueue(path=str(record), until=str(flag))
    atpd(processes=1, settings={"RELEASE_GRACE": 0.2})
    [line] = record.wait_for("start")
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    queue.release(instance)
    record.wait_for("start", 2)
    assert not is_alive(line["pid"])
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.lost) == (State.FINISHED, 2, 0)


def test_workers_retire(atpd, record):
    """--max-tasks-per-worker: every worker runs so many, and no task is lost or charged."""
    daemon = atpd("--max-tasks-per-worker", "3", processes=1)
    instances = types.pid.enqueue_many({} for _ in range(10))
    pids = [queue.response(instance.wait(DEADLINE)).value for instance in instances]
    assert max(pids.count(pid) for pid in pids) == 3
    assert len(set(pids)) >= 4
    assert {instance.lost for instance in instances} == {0}
    assert "has run 3 tasks" in daemon.wait_for_fact("worker_retired", 3)["message"]
    assert not daemon.facts("worker_died")


def test_who_retires_is_given_nothing_more(atpd):
    """G6: the start of a transactional attempt is recorded before its worker has it."""
    atpd("--max-tasks-per-worker", "1", processes=1)
    instances = [transactional.row.enqueue(number=number) for number in range(8)]
    for instance in instances:
        instance.wait(DEADLINE)
    kinds = LogRecord.objects.filter(instance__in=instances).values_list("kind", flat=True)
    assert Counter(kinds) == dict.fromkeys(("enqueue", "claim", "start", "finish", "message"), 8)


def test_workers_retire_for_memory(atpd):
    daemon = atpd("--max-memory-per-worker", "1M", processes=1)
    instances = types.pid.enqueue_many({} for _ in range(3))
    pids = {queue.response(instance.wait(DEADLINE)).value for instance in instances}
    assert len(pids) == 3
    assert "MiB resident" in daemon.wait_for_fact("worker_retired")["message"]


def test_short_tasks_do_not_wait_behind_a_long_one(atpd, record, flag):
    """What was handed out ahead is taken back when its worker's task becomes long (G9)."""
    types.wait.enqueue(path=str(record), until=str(flag.parent))  # a short one: it is there
    daemon = atpd(processes=2).ready(workers=2)
    wait_for(lambda: not Task.objects.exists())
    with transaction.atomic():
        long = types.wait.enqueue(path=str(record), until=str(flag), number=-1)
        short = types.wait.enqueue_many(
            {"path": str(record), "until": str(flag.parent), "number": n} for n in range(50)
        )
    for instance in short:
        instance.wait(DEADLINE)
    long.refresh_from_db()
    assert long.state == State.RUNNING
    flag.touch()
    assert long.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0
