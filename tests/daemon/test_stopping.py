"""Daemons stop in order (G10), and several of them share the work (G3)."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from atp import messages, queue
from atp.commands import Mode
from atp.models import Daemon, Kind, LogRecord, Task
from atp.states import Reason, State
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, wait_for

from ..nonsense import tells
from .harness import Record, is_alive, story
from .scenario import on_postgresql, slow_claims, stopped_between_transactions, wait_until


def command(name):
    return queue.command(Daemon.objects.get(), name, by="ann via tests")


def in_mode(mode):
    return wait_for(Daemon.objects.filter(mode=mode).first, what=f"a {mode} daemon")


@pytest.mark.parametrize("how", ["SIGTERM", "command"])
def test_running_tasks_finish_within_grace(begin, record, flag, how):
    """G10: what waits is not touched."""
    running, daemon, _ = begin(types.wait, "--grace", "20")
    waiting = types.note.enqueue(path=str(record))
    if how == "command":
        command("stop")
        assert daemon.wait_for_fact("daemon_stopping")["why"] == "it was told to"
        assert not in_mode(Mode.STOPPING).idle
    else:
        daemon.signal()
        assert in_mode(Mode.STOPPING).request == ""
    flag.touch()
    assert daemon.wait() == 0
    assert running.wait(0).state == State.FINISHED
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempt) == (State.ACCEPTED, 0)
    assert Daemon.objects.count() == 0
    about = LogRecord.objects.about_any().filter(subject__startswith="daemon:")
    assert [row.kind for row in about.exclude(kind=Kind.ORDER)] == [Kind.STARTED, Kind.LEFT]


@pytest.mark.parametrize("grace", ["0.5", "6000"])
def test_tasks_past_grace_are_interrupted_and_handed_back_uncharged(
    atpd, record, flag, tmp_path, grace
):
    """G10: a second signal ends the grace. A handler that does not check is killed."""
    checking, deaf = Record(tmp_path / "checking"), Record(tmp_path / "deaf")
    stubborn = types.stubborn.enqueue(path=str(record), until=str(flag))
    interrupted = types.interrupted.enqueue(path=str(checking), until=str(flag))
    cancelled = types.stubborn.enqueue(path=str(deaf), until=str(flag))
    daemon = atpd("--grace", grace, processes=3, settings={"CANCEL_GRACE": 60})
    [line] = record.wait_for("start")
    checking.wait_for("start")
    deaf.wait_for("start")
    wait_until(State.RUNNING, cancelled)
    queue.cancel(cancelled)
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
    assert cancelled.refresh_from_db() or cancelled.reason == Reason.CANCELLED


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
def test_signal_during_the_exit_does_not_change_the_status():
    """G10."""
    command = [sys.executable, "-c", SIGNALLED_IN_ITS_EXIT]
    with subprocess.Popen(command, env=child_environment(), stderr=subprocess.DEVNULL) as daemon:
        wait_for(Daemon.objects.filter(idle=True).exists, DEADLINE)
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0


def test_released_task_is_handed_back_and_runs_again(atpd, record, flag, tmp_path):
    """RFC 14's re-enqueue of a live task. A handler that does not check is killed."""
    deaf = Record(tmp_path / "deaf")
    instance = types.interrupted.enqueue(path=str(record), until=str(flag))
    stubborn = types.stubborn.enqueue(path=str(deaf), until=str(flag))
    atpd(processes=2, settings={"RELEASE_GRACE": 0.2})
    record.wait_for("start")
    [line] = deaf.wait_for("start")
    for each in (instance, stubborn):
        wait_until(State.RUNNING, each)
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


def test_workers_retire_after_so_many_tasks_or_for_their_memory(atpd):
    """No task is lost or charged."""
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


# Commands to daemons: quiet, resume, stop


def test_quiet_daemon_hands_back_what_has_not_started(atpd, record, flag):
    """G8, G10: a running task goes on; those handed back keep their place, and are not charged."""
    types.wait.enqueue(path=str(record), until=str(flag.parent))  # its usual time: short
    daemon = atpd(processes=1)
    wait_for(lambda: not Task.objects.exists())
    first, *others = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(12)
    )
    record.wait_for("start", 2)
    command("quiet")
    row = in_mode(Mode.QUIET)
    assert (row.request, row.idle) == ("quiet", False)
    wait_for(lambda: Task.objects.claimed().count() == 1, what="all but one handed back")
    flag.touch()
    assert first.wait(DEADLINE).state == State.FINISHED
    # It looks at the queue, and renews, and takes nothing.
    seen = Daemon.objects.get().seen
    wait_for(lambda: Daemon.objects.filter(seen__gt=seen).exists(), what="a renewal")
    for instance in others:
        instance.refresh_from_db()
        assert (instance.state, instance.lost) == (State.ACCEPTED, 0)
    assert not Daemon.objects.get().idle
    command("resume")
    for instance in others:
        assert instance.wait(DEADLINE).state == State.FINISHED
    assert [line["number"] for line in record.lines("start")][1:] == list(range(12))
    assert in_mode(Mode.RUNNING).request == ""
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    assert daemon.stop() == 0
    assert len(daemon.facts("went_quiet")) == len(daemon.facts("resumed")) == 1
    about = LogRecord.objects.filter(instance=None, subject=f"daemon:{row}").order_by("pk")
    said = [(r.kind, r.detail, r.who) for r in about]
    assert (Kind.ORDER, "quiet", "ann via tests") in said
    assert (Kind.ORDER, "resume", "ann via tests") in said


@on_postgresql
def test_daemon_is_quiet_only_when_no_claim_is_under_way(atpd, record):
    """Whoever has read it may enqueue, and this daemon will not claim it."""
    daemon = atpd(processes=1, settings={"POLL_EVERY": 30, "RENEW_EVERY": 0.2}).ready()
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    with slow_claims() as (one_is_under_way, go_on):
        waiting = types.note.using(run_after=timedelta(seconds=1)).enqueue(path=str(record))
        get_store().tell()
        one_is_under_way()
        command("quiet")
        daemon.wait_for_fact("went_quiet")
        renewed = Daemon.objects.get().seen
        wait_for(lambda: Daemon.objects.filter(seen__gt=renewed).exists(), what="a renewal")
        assert Daemon.objects.get().mode == Mode.RUNNING
        go_on()
    in_mode(Mode.QUIET)
    command("resume")
    assert waiting.wait(DEADLINE).state == State.FINISHED


def test_command_is_obeyed_by_the_next_dispatcher(atpd, record):
    daemon = atpd(processes=1).ready()
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")

    def next_dispatcher(order):
        """Give a command to a dispatcher that dies before it reads it; return a new Instance."""
        pid, old = daemon.dispatcher(), Daemon.objects.get()
        with stopped_between_transactions(pid):
            command(order)
            instance = types.note.enqueue(path=str(record))
            os.kill(pid, signal.SIGKILL)
        is_new = Daemon.objects.exclude(uuid=old.uuid).exists
        wait_for(lambda: is_new() and Daemon.objects.count() == 1, what="a new identity alone")
        return instance

    first = next_dispatcher("quiet")
    assert in_mode(Mode.QUIET).request == "quiet"
    # A claim of the old one may have been on its way to the server, which went on with it.
    enqueued, *later = story(first)
    assert enqueued == "enqueue→ACCEPTED 0"
    assert later in ([], ["claim→SCHEDULED 1", "expire→ACCEPTED 1"])
    second = next_dispatcher("resume")
    for instance in (first, second):
        assert instance.wait(DEADLINE).state == State.FINISHED
    assert len(daemon.facts("rejoined")) == 2
    command("stop")
    assert daemon.wait() == 0
