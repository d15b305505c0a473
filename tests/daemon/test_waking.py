"""An idle daemon hears of what waits, or is handed it in the same commit (G15).

It looks by itself so seldom here that what starts in time was heard of.
"""

import os
import signal
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from atp import queue
from atp.models import Daemon, Instance, LogRecord, Task
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import wait_for

from . import inside
from .harness import story
from .scenario import ONCE, ask, cut_connections, on_postgresql, wait_until

# Of what SQLite's listener has not heard, nothing is lost: see store/test_sqlite_handing.py.
SELDOM = {"POLL_EVERY": 60.0, "SWEEP_EVERY": 60.0}
# Far less than that, and long enough for a loaded machine.
IN_TIME = 20.0


@pytest.fixture
def idle(atpd, monkeypatch):
    """Start a daemon that looks seldom, and wait until it can be handed something."""
    # However soon after another.
    monkeypatch.setattr(inside.handover, "APART", 0.0)

    def start(processes=2):
        known = set(Daemon.objects.values_list("uuid", flat=True))
        daemon = atpd(processes=processes, settings=SELDOM).ready(workers=processes)
        new = Daemon.objects.exclude(channel="").exclude(uuid__in=known)
        row = wait_for(new.first, what="a channel")
        wait_until_idle()
        return daemon, row

    return start


def wait_until_idle(is_idle=True):
    rows = Daemon.objects.filter(idle=is_idle)
    wait_for((rows.exclude(channel="") if is_idle else rows).exists, what=f"idle={is_idle}")


def finished(instance):
    return instance.wait(IN_TIME).state == State.FINISHED


def handed(instance):
    """Whether it was claimed by the statement that enqueued it."""
    times = list(instance.log.transitions().values_list("time", flat=True)[:2])
    return len(times) == 2 and times[0] == times[1]


def test_idle_daemon_starts_a_task_at_once(idle):
    """G15: and it knows when a dated task becomes due."""
    idle()
    assert finished(types.noop.enqueue())  # the first of a connection is not handed, on PostgreSQL
    for _ in range(5):
        wait_until_idle()
        instance = types.noop.enqueue().wait(IN_TIME)
        assert story(instance) == ONCE
        assert handed(instance)
    wait_until_idle()
    assert all(finished(each) for each in types.noop.enqueue_many({} for _ in range(50)))
    with transaction.atomic():
        types.noop.using(identifier="undone").enqueue()
        transaction.set_rollback(True)
    with transaction.atomic():
        first = types.noop.enqueue()
        with transaction.atomic():
            second = types.noop.enqueue()
    assert finished(first)
    assert finished(second)
    assert not Instance.objects.filter(identifier="undone").exists()
    redriven = types.error.enqueue()
    for attempt in (1, 2):
        redriven.wait(IN_TIME)
        assert (redriven.reason, redriven.attempt) == (Reason.ERROR, attempt)
        wait_until_idle()
        queue.redrive(redriven)
    again = types.again.enqueue(times=5)
    assert finished(again)
    assert again.attempt == 6
    wait_until_idle()
    changed = types.noop.using(run_after=timedelta(hours=1)).enqueue()
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    later = types.noop.using(run_after=due).enqueue()
    assert finished(types.noop.enqueue())
    assert finished(later)
    assert later.started >= due
    wait_until_idle()
    queue.change(changed, due=timedelta(), by="ann")
    assert finished(changed)


def test_daemon_is_idle_while_a_worker_is_free(idle, record, flag):
    """G9: a task that was handed to it when it was not is handed back."""
    _, row = idle()
    long = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_until(State.RUNNING, long)
    for _ in range(3):
        assert finished(types.noop.enqueue())
    other = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start", 2)
    wait_until_idle(False)

    def handed_to_the_busy():
        """Enqueue while the row says wrongly that it is idle; None if it was put right."""
        Daemon.objects.filter(uuid=row.uuid).update(idle=True, channel=row.channel)
        instance = types.noop.enqueue()
        if handed(instance):
            return instance
        queue.cancel(instance)  # nothing is handed over while something waits in its lane
        return None

    handed_back = wait_for(handed_to_the_busy, what="one that is handed over")
    wait_for(lambda: "release→ACCEPTED 1" in story(handed_back), what="its release")
    idle()
    assert finished(handed_back)
    flag.touch()
    assert finished(long)
    assert finished(other)
    wait_until_idle()


@on_postgresql
def test_lost_connections_are_replaced_also_that_of_the_listener(idle, record, flag):
    """G11."""
    daemon, _ = idle()
    running = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    cut_connections()
    assert finished(types.noop.enqueue())
    listeners = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND query LIKE 'LISTEN atp_wake%'"
    )
    wait_for(lambda: ask(listeners), what="a listener")
    wait_until_idle()
    assert finished(types.noop.enqueue())
    assert not daemon.facts("listening_ended")
    flag.touch()
    assert finished(running)
    assert running.attempt == 1


@on_postgresql
def test_handed_task_that_nobody_heard_of_is_run(idle):
    """G1, G2: the listening session ends just before the commit."""
    daemon, row = idle()
    dispatcher = daemon.dispatcher()
    os.kill(dispatcher, signal.SIGSTOP)
    try:
        ask(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE granted "
            "AND locktype = 'advisory' AND (classid::bigint << 32) + objid::bigint = %s",
            int(row.channel.split("_")[1]),
        )
        instance = types.noop.enqueue()
        hand_over(instance, row)
    finally:
        os.kill(dispatcher, signal.SIGCONT)
    assert finished(instance)
    assert story(instance)[1:3] == ["claim→SCHEDULED 1", "expire→ACCEPTED 1"]
    assert instance.restarts == 0
    assert not Daemon.objects.filter(uuid=row.uuid).exists()

    def is_handed():
        wait_until_idle()
        return handed(types.noop.enqueue().wait(IN_TIME))

    # One that comes while the daemon renews its lease is not handed over.
    wait_for(is_handed)


def hand_over(instance, row):
    """Write what a statement writes that is just being committed, and of which nobody hears."""
    waiting = Task.objects.filter(pk=instance.pk, daemon=None)
    with transaction.atomic():
        assert waiting.update(daemon=row, attempt=1)
        Instance.objects.filter(pk=instance.pk).update(state=State.SCHEDULED, attempt=1)
        LogRecord.objects.create(
            instance=instance,
            time=instance.created,
            kind="claim",
            state=State.SCHEDULED,
            attempt=1,
            level=20,
            who=str(row),
        )
