"""An idle daemon is handed what is enqueued, in the same commit (G15).

It looks by itself so seldom here that what starts in time was heard of.
"""

import contextlib
import os
import signal
from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.models import Daemon, Inputs, Instance, LogRecord, Task
from atp.states import State
from atp.store import get_store, handover
from atp.store.sqlite.wakeups.handover import is_heard
from tests.app import tasks_daemon as types
from tests.helpers import wait_for

from .harness import story

# Of what SQLite's listener has not heard, nothing is lost: see store/test_sqlite_handing.py.
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="of its sessions")
SELDOM = {"POLL_EVERY": 60.0, "SWEEP_EVERY": 60.0}
# Far less than that, and long enough for a loaded machine.
IN_TIME = 20.0
DONE = ["enqueue→ACCEPTED 0", "claim→SCHEDULED 1", "start→RUNNING 1", "finish→FINISHED 1"]


@pytest.fixture
def idle(atpd, monkeypatch):
    """Start a daemon that looks seldom, and wait until it can be handed something."""
    # However soon after another.
    monkeypatch.setattr(handover, "APART", 0.0)

    def start(processes=2, **settings):
        known = set(Daemon.objects.values_list("uuid", flat=True))
        daemon = atpd(processes=processes, settings=SELDOM | settings).ready(workers=processes)
        return daemon, wait_for(
            lambda: Daemon.objects.exclude(channel="").exclude(uuid__in=known).first(),
            what="a channel",
        )

    return start


def wait_until_idle(count=1):
    ready = Daemon.objects.filter(idle=True).exclude(channel="")
    wait_for(lambda: ready.count() >= count, what="idle daemons")


def handed(instance):
    """Whether it was claimed by the statement that enqueued it."""
    times = list(instance.log.transitions().values_list("time", flat=True)[:2])
    return len(times) == 2 and times[0] == times[1]


def handed_to_the_busy(row):
    """Enqueue while the row of a daemon says wrongly that it is idle; None if it was put right."""
    Daemon.objects.filter(uuid=row.uuid).update(idle=True, channel=row.channel)
    instance = types.noop.enqueue()
    return instance if handed(instance) else None


def session(row):
    """The process of the server that tells the daemon, or None."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND (classid::bigint << 32) + objid::bigint = %s",
            [int(row.channel.split("_")[1])],
        )
        return next((pid for (pid,) in cursor.fetchall()), None)


def end_session(row):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [session(row)])


def test_each_is_handed_over(idle):
    idle()
    wait_until_idle()
    types.noop.enqueue().wait(IN_TIME)  # the first of a connection is not, on PostgreSQL
    for _ in range(5):
        wait_until_idle()
        instance = types.noop.enqueue().wait(IN_TIME)
        assert story(instance) == DONE
        assert handed(instance)


@on_postgresql
def test_what_nobody_heard_of_is_run_all_the_same(idle):
    """G1, G2: the session that hears ends when the row has been looked at, before the commit."""
    daemon, row = idle()
    wait_until_idle()
    with suspended(daemon.dispatcher()):
        end_session(row)
        instance = types.noop.enqueue()
        hand_over(instance, row)
    assert instance.wait(IN_TIME).state == State.FINISHED
    assert story(instance)[1:3] == ["claim→SCHEDULED 1", "expire→ACCEPTED 1"]
    assert instance.restarts == 0
    assert not Daemon.objects.filter(uuid=row.uuid).exists()

    def is_handed():
        wait_until_idle()
        return handed(types.noop.enqueue().wait(IN_TIME))

    # One that comes while the daemon renews its lease is not handed over.
    wait_for(is_handed)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="what stands in the daemon's row")
def test_what_its_listener_does_not_see_is_run_all_the_same(idle):
    """G1: for some reason that was not foreseen; here because something of it is missing."""
    daemon, row = idle(RENEW_EVERY=0.5)
    wait_until_idle()
    instance = types.noop.using(run_after=timedelta(hours=1)).enqueue()
    inputs = Inputs.objects.get(pk=instance.pk)
    with transaction.atomic():
        Inputs.objects.filter(pk=instance.pk).delete()
        Task.objects.filter(pk=instance.pk).update(due_at=instance.created)
        hand_over(instance, row)
        named = f"{row.channel}:{instance.pk}"
        assert Daemon.objects.filter(uuid=row.uuid).update(idle=False, channel=named)
    daemon.wait_for_fact("channel_lost")
    daemon.wait_for_fact("rejoined")
    inputs.save(force_insert=True)
    assert instance.wait(IN_TIME).state == State.FINISHED
    assert story(instance)[1:3] == ["claim→SCHEDULED 1", "expire→ACCEPTED 1"]


@on_postgresql
def test_what_runs_goes_on_when_the_session_that_hears_is_lost(idle, record, flag):
    """G11: the daemon takes a new identity, with what it holds."""
    daemon, row = idle()
    wait_until_idle()
    instance = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_until_idle()
    end_session(row)
    daemon.wait_for_fact("rejoined")
    flag.touch()
    assert instance.wait(IN_TIME).state == State.FINISHED
    assert story(instance) == DONE


def test_nothing_is_handed_to_the_dead(idle):
    """G15: what waits for the end of a lease would wait long."""
    (first, row), _ = idle(), idle()
    wait_until_idle(2)
    first.destroy()
    Daemon.objects.exclude(uuid=row.uuid).update(idle=False)
    wait_for(lambda: not hears(row), what="the end of its listener")
    Daemon.objects.exclude(uuid=row.uuid).update(idle=True)
    for _ in range(3):
        instance = types.noop.enqueue().wait(IN_TIME)
        assert story(instance) == DONE


def test_a_daemon_without_a_free_worker_hands_it_back(idle, record, flag):
    """G9: its row may say for a moment that it is idle when it is not any more."""
    _, row = idle(processes=1)
    wait_until_idle()
    long = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_for(lambda: not Daemon.objects.get(uuid=row.uuid).idle, what="busy")
    instance = wait_for(lambda: handed_to_the_busy(row), what="one that is handed over")
    wait_for(lambda: "release→ACCEPTED 1" in story(instance), what="its release")
    idle()
    assert instance.wait(IN_TIME).state == State.FINISHED
    flag.touch()
    assert long.wait(IN_TIME).state == State.FINISHED


def hears(row):
    """Whether the listener of a daemon is there."""
    if connection.vendor == "postgresql":
        return session(row) is not None
    return is_heard(get_store().lock_folder, row.channel)


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


@contextlib.contextmanager
def suspended(pid):
    """A process does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
