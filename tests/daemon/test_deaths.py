"""Workers, dispatchers and supervisors die, and nothing is lost (G1, G2, G3, G5)."""

import os
import signal
from datetime import UTC, datetime, timedelta

import psutil
from django.db import connection

from atp import messages as attempt_messages
from atp import queue
from atp.conf import settings
from atp.models import Daemon, Kind, LogRecord, Task, Type
from atp.states import Reason, State
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by, tells
from .harness import Record, is_alive, story
from .scenario import TWICE, on_postgresql, slow_claims, stopped_between_transactions


def test_task_of_a_killed_worker_runs_again_within_a_second(begin, record, flag):
    """G1, G2."""
    instance, daemon, line = begin(types.wait)
    killed = datetime.now(UTC)
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("start", 2)
    flag.touch()

    assert instance.wait(DEADLINE).state == State.FINISHED
    assert story(instance) == TWICE
    again = instance.log.get(kind="claim", attempt=2)
    assert again.time - killed < timedelta(seconds=1)
    expired = instance.log.get(kind="expire")
    words = "its worker was ended by SIGKILL"
    assert is_made_by(expired.message, attempt_messages.worker_died, words)
    assert (instance.restarts, instance.lost, instance.retries) == (1, 1, 0)
    assert daemon.facts("worker_died")


def test_task_that_kills_its_workers_fails_after_its_restarts(atpd, record, tmp_path):
    """G5, RFC 14: so does a task that spins in C and holds the GIL, with its child processes."""
    instance = types.crash.enqueue(path=str(record))
    other = types.note.using(priority=-5).enqueue(path=str(record))
    spins = Record(tmp_path / "spins")
    spinning = types.spin.enqueue(path=str(spins))
    daemon = atpd(processes=2)
    for each in (instance, other, spinning):
        each.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.STALE)
    assert len(record.lines("start")) == 3
    assert (instance.restarts, instance.attempt) == (3, 3)
    lost = instance.log.filter(kind="expire")
    assert len(lost) == 3
    for row in lost:
        words = "its worker was ended by SIGKILL, sent by another process or, when memory ran out"
        assert is_made_by(row.message, attempt_messages.worker_died, words)
    given_up = attempt_messages.attempts_given_up(3, 2, 3, lost[2].message)
    assert tells(instance.log.get(kind="fail").message, given_up)
    assert (other.state, other.lost) == (State.FINISHED, 0)
    [line] = spins.lines("start")
    assert spinning.reason == Reason.STALE
    assert tells(spinning.log.get(kind="expire").message, attempt_messages.timed_out(1))
    assert not any(map(is_alive, (line["pid"], *line["children"])))
    assert 1.0 <= (spinning.finished - spinning.started).total_seconds() < 30.0
    daemon.ready(workers=2)
    assert daemon.stop() == 0
    told = {each["instance"]: each["reason"] for each in daemon.facts("failed")}
    assert told == {str(instance.uuid): "STALE", str(spinning.uuid): "STALE"}
    assert daemon.facts("daemon_stopped")[0]["failed"] == 2


def test_new_dispatcher_takes_over_before_the_lease_ends(begin, record, flag):
    """G2, G3: what ran starts again."""
    long = {"LEASE": 600, "KILL_AFTER": 590}
    instance, daemon, line = begin(types.wait, processes=2, settings=long)
    old = Daemon.objects.get()

    os.kill(daemon.dispatcher(), signal.SIGKILL)
    record.wait_for("start", 2)
    assert not is_alive(line["pid"])
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert (instance.attempt, instance.restarts) == (2, 1)
    assert [row["attempt"] for row in record.lines("end")] == [2]
    assert Daemon.objects.get().uuid != old.uuid
    assert daemon.stop() == 0
    assert Daemon.objects.count() == 0


def test_killed_supervisor_takes_all_its_processes_with_it(atpd, begin, record, flag):
    """G1, G3: also children of handlers; another daemon takes over."""
    instance, daemon, line = begin(types.family)
    family = daemon.family()
    assert {line["pid"], *line["children"]} <= {pid for pid, _ in family}
    other = atpd(processes=1).ready()
    # Another daemon takes Tasks away once its own renewals have gone through for a lease.
    lease = settings.LEASE if connection.vendor == "postgresql" else 0.0
    joined = datetime.fromisoformat(other.facts("joined")[0]["time"])
    wait_for(lambda: (datetime.now(UTC) - joined).total_seconds() > lease, what="a whole lease")

    os.kill(daemon.pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(*member) for member in family), what="its end")
    record.wait_for("start", 2)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    expired = instance.log.get(kind="expire").message
    assert Daemon.objects.count() == 1
    # On PostgreSQL the dispatcher has given it up itself; a lock ends with its last process.
    swept = [] if connection.vendor == "postgresql" else [str(instance.uuid)]
    assert [told["instance"] for told in other.facts("expired")] == swept
    lost = LogRecord.objects.filter(instance=None, kind=Kind.LOST)
    [name] = [row.subject.removeprefix("daemon:") for row in lost]
    assert name.rpartition(":")[2] == str(daemon.pid)
    messages = (attempt_messages.daemon_lost(name), attempt_messages.supervisor_killed())
    assert any(tells(expired, message) for message in messages)


def test_rescuing_daemon_kills_programs_left_by_a_killed_daemon(atpd, begin, record, flag):
    """G3."""
    instance, daemon, line = begin(types.kin)
    kin = [(pid, psutil.Process(pid).create_time()) for pid in line["children"]]
    atpd(processes=1).ready()
    neighbour = types.kin.enqueue(path=str(record), until=str(flag), number=1)
    [_, beside] = record.wait_for("start", 2)
    dispatcher = daemon.dispatcher()
    os.kill(daemon.pid, signal.SIGSTOP)
    os.kill(dispatcher, signal.SIGKILL)
    os.kill(daemon.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(line["pid"]), what="the death of its worker")
    # Any daemon of this host may do it, and other tests have some at this moment.
    wait_for(lambda: not any(is_alive(*member) for member in kin), 40, what="the end of its kin")
    assert all(is_alive(pid) for pid in beside["children"])
    flag.touch()
    for each in (instance, neighbour):
        assert each.wait(DEADLINE).state == State.FINISHED
    signs = [row for row in record.lines("tick") if row["number"] == 0]
    last = max(row["time"] for row in signs if row["attempt"] == 1)
    assert last < min(row["time"] for row in signs if row["attempt"] == 2)
    assert (neighbour.attempt, instance.attempt) == (1, 2)


@on_postgresql
def test_claim_that_outlives_its_dispatcher_holds_no_task(atpd, record):
    """G3: it waits in the server while its dispatcher is killed."""
    daemon = atpd(processes=1).ready()
    old = Daemon.objects.get()
    soon = timedelta(seconds=1)
    with slow_claims() as (one_is_under_way, go_on):
        instance = types.note.using(run_after=soon).enqueue(path=str(record))
        # The claim has taken the Task, and is about to write its LogRecord.
        one_is_under_way()
        os.kill(daemon.dispatcher(), signal.SIGKILL)
        daemon.wait_for_fact("dispatcher_died")
        go_on()

    assert instance.wait(DEADLINE).state == State.FINISHED
    assert len(record.lines("ran")) == 1
    wait_for(lambda: not Task.objects.exists())
    assert not Daemon.objects.filter(uuid=old.uuid).exists()


def test_late_write_is_refused_and_recorded(begin, record, flag):
    """G4."""
    instance, daemon, _ = begin(types.stubborn)
    dispatcher = daemon.dispatcher()
    with stopped_between_transactions(dispatcher):
        # Its attempt ends while it cannot say so, and a sweep takes its Task away.
        flag.touch()
        record.wait_for("end")
        Daemon.objects.update(lock="", lease_until=datetime.now(UTC) - timedelta(hours=1))
        assert get_store().daemons.sweep().expired == 1
        instance.refresh_from_db()
        assert (instance.state, instance.attempt) == (State.ACCEPTED, 1)

    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert story(instance) == TWICE
    assert [line["attempt"] for line in record.lines("end")] == [1, 2]
    assert daemon.facts("refused")
    [kept] = [row for row in instance.log.filter(attempt=1) if not row.event]
    assert (kept.kind, kept.detail.split()[0]) == (Kind.LATE, "finish")
    late = attempt_messages.late_result(1, "finish", -1, transactional=False)
    assert tells(kept.message, late)
    assert Type.objects.get(identifier="daemon.stubborn").late_writes == 1
    assert queue.size() == 0
