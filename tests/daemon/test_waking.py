"""An idle daemon hears of what waits, and need not look for it (G15).

It looks by itself so seldom here that what starts in time was heard of.
"""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from atp import queue
from atp.models import Daemon, Instance
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import wait_for

SELDOM = {"POLL_EVERY": 60.0, "SWEEP_EVERY": 60.0}
# Far less than that, and long enough for a loaded machine.
IN_TIME = 20.0


@pytest.fixture
def idle(atpd):
    """Start a daemon that looks seldom, and wait until it has said that it is idle."""

    def start(*args, processes=2, **settings):
        daemon = atpd(*args, processes=processes, settings=SELDOM | settings)
        daemon.ready(workers=processes)
        wait_until_idle()
        return daemon

    return start


def wait_until_idle(is_idle=True):
    wait_for(lambda: Daemon.objects.filter(idle=is_idle).exists(), what=f"idle={is_idle}")


def finished(instance):
    return instance.wait(IN_TIME).state == State.FINISHED


def test_what_is_enqueued(idle):
    idle()
    for _ in range(5):
        assert finished(types.noop.enqueue())
        wait_until_idle()
    assert all(finished(each) for each in types.noop.enqueue_many({} for _ in range(50)))


def test_what_a_transaction_has_enqueued(idle):
    idle()
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


def test_what_is_redriven(idle):
    idle()
    instance = types.error.enqueue()
    for attempt in (1, 2):
        instance.wait(IN_TIME)
        assert (instance.reason, instance.attempt) == (Reason.ERROR, attempt)
        wait_until_idle()
        queue.redrive(instance)


def test_what_is_released(idle, record, flag):
    """By an operator: it is started again at once."""
    idle(processes=1, POLL_EVERY=0.2)
    instance = types.interrupted.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    queue.release(instance)
    record.wait_for("start", 2, timeout=IN_TIME)
    flag.touch()
    assert finished(instance)


def test_what_is_to_be_tried_again(idle):
    idle()
    instance = types.again.enqueue(times=5)
    assert finished(instance)
    assert instance.attempt == 6


def test_what_is_due_in_a_while(idle):
    """The daemon knows when that is."""
    idle()
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    later = types.noop.using(run_after=due).enqueue()
    assert finished(types.noop.enqueue())
    assert finished(later)
    assert later.started >= due


def test_a_free_worker_beside_one_that_runs_long(idle, record, flag):
    """A long task keeps nobody from being woken."""
    idle()
    long = types.wait.enqueue(path=str(record), until=str(flag))
    wait_for(lambda: long.refresh_from_db() or long.state == State.RUNNING)
    for _ in range(3):
        assert finished(types.noop.enqueue())
    flag.touch()
    assert finished(long)


def test_it_is_idle_when_it_has_nothing_to_do(idle, record, flag):
    """What its row says decides whether it is told; a busy one is not called idle for long."""
    idle(processes=1)
    long = types.wait.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_until_idle(False)
    flag.touch()
    assert finished(long)
    wait_until_idle()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="there are no connections to end")
def test_after_its_connections_were_ended(idle):
    """All of them; that which listens is replaced too (G11)."""
    daemon = idle()
    joined = len(daemon.facts("joined") + daemon.facts("rejoined"))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert finished(types.noop.enqueue())
    wait_for(lambda: listeners(), what="a listener")
    wait_until_idle()
    assert finished(types.noop.enqueue())
    assert not daemon.facts("listening_ended")
    assert joined == 1


def listeners():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND query LIKE 'LISTEN atp_wake%'"
        )
        return cursor.fetchall()
