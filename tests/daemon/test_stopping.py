"""Daemons stop in order (G10), and several of them share the work (G3)."""

import signal
import subprocess
import sys

import pytest

from atp import messages, queue
from atp.commands import Mode
from atp.models import Daemon, Kind, LogRecord, Task
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, wait_for

from ..nonsense import tells
from .harness import Record, is_alive, story


def test_running_tasks_finish_within_grace(atpd, record, flag):
    """SIGTERM during work: exit 0, what runs finishes, what waits is not touched (G10)."""
    running = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "20", processes=1)
    record.wait_for("start")
    waiting = types.note.enqueue(path=str(record))
    daemon.signal()
    daemon.wait_for_fact("daemon_stopping")
    stopping = Daemon.objects.filter(mode=Mode.STOPPING, request="")
    wait_for(stopping.exists, what="a row that says so")
    flag.touch()
    assert daemon.wait() == 0
    assert running.wait(0).state == State.FINISHED
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempt) == (State.ACCEPTED, 0)
    assert Daemon.objects.count() == 0
    started, stopped = LogRecord.objects.filter(instance=None, subject__startswith="daemon:")
    assert (started.kind, stopped.kind) == (Kind.STARTED, Kind.LEFT)


@pytest.mark.parametrize("grace", ["0.5", "6000"])
def test_tasks_past_grace_are_handed_back(atpd, record, flag, tmp_path, grace):
    """What does not finish within its grace is handed back, no budget charged (G10).

    A second signal ends the grace. A handler that checks is interrupted before it is killed, and
    may clean up.
    """
    checking = Record(tmp_path / "checking")
    stubborn = types.stubborn.enqueue(path=str(record), until=str(flag))
    interrupted = types.interrupted.enqueue(path=str(checking), until=str(flag))
    daemon = atpd("--grace", grace, processes=2)
    [line] = record.wait_for("start")
    checking.wait_for("start")
    daemon.signal()
    if grace == "6000":
        daemon.wait_for_fact("daemon_stopping")
        daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0
    assert not is_alive(line["pid"])
    assert [each["event"] for each in checking.lines()] == ["start", "cleaned up"]
    for instance in (stubborn, interrupted):
        instance.refresh_from_db()
        assert instance.state == State.ACCEPTED
        assert (instance.restarts, instance.retries, instance.lost) == (0, 0, 0)
    assert story(stubborn)[-1] == "release→ACCEPTED 1"
    assert tells(stubborn.log.last().message, messages.daemon_stopping())
    assert not Task.objects.exclude(daemon=None).exists()


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


def test_release_of_a_running_task(atpd, record, flag, tmp_path):
    """RFC 14's re-enqueue of a live task: its holder hands it back, and it runs again.

    What does not listen is killed.
    """
    deaf = Record(tmp_path / "deaf")
    instance = types.interrupted.enqueue(path=str(record), until=str(flag))
    stubborn = types.stubborn.enqueue(path=str(deaf), until=str(flag))
    atpd(processes=2, settings={"RELEASE_GRACE": 0.2})
    record.wait_for("start")
    [line] = deaf.wait_for("start")
    for each in (instance, stubborn):
        wait_for(lambda each=each: each.refresh_from_db() or each.state == State.RUNNING)
        assert queue.release(each, by="operator via shell") is True
    record.wait_for("start", 2)
    deaf.wait_for("start", 2)
    assert not is_alive(line["pid"])
    flag.touch()
    for each in (instance, stubborn):
        each.wait(DEADLINE)
        assert (each.state, each.attempt) == (State.FINISHED, 2)
        assert (each.restarts, each.lost) == (0, 0)
        assert each.log.get(kind=Kind.ASK, detail="release").who == "operator via shell"


def test_workers_retire(atpd):
    """After so many tasks, or for their memory; no task is lost or charged."""
    for option, limit, most, words in (
        ("--max-tasks-per-worker", "3", 3, "has run 3 tasks"),
        ("--max-memory-per-worker", "1M", 1, "MiB resident"),
    ):
        daemon = atpd(option, limit, processes=1)
        instances = types.pid.enqueue_many({} for _ in range(3 * most + 1))
        pids = [queue.response(instance.wait(DEADLINE)).value for instance in instances]
        assert max(pids.count(pid) for pid in pids) == most
        assert len(set(pids)) >= 4
        assert {instance.lost for instance in instances} == {0}
        assert words in daemon.wait_for_fact("worker_retired", 3)["message"]
        assert not daemon.facts("worker_died")
        assert not daemon.facts("worker_failing")
        assert daemon.stop() == 0
