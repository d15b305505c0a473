"""Daemons are told to go quiet, to resume, to stop (G10)."""

import os
import signal
from datetime import timedelta

import pytest
from django.db import connection

from atp import queue
from atp.commands import Mode
from atp.models import Daemon, Kind, LogRecord, Task
from atp.states import State
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from .harness import story
from .slow_claims import slow_claims
from .test_deaths import stopped_between_transactions


def told(order, row=None):
    return queue.command(row or Daemon.objects.get(), order, by="ann via tests")


def in_mode(mode):
    return wait_for(Daemon.objects.filter(mode=mode).first, what=f"a {mode} daemon")


def test_quiet_and_resume(atpd, record, flag):
    """What runs goes on, and nothing more is claimed.

    G8: what has not started is handed back, keeps its place, and no budget is charged.
    """
    types.wait.enqueue(path=str(record), until=str(flag.parent))  # its usual time: short
    daemon = atpd(processes=1)
    wait_for(lambda: not Task.objects.exists())
    first, *others = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(12)
    )
    record.wait_for("start", 2)
    told("quiet")
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
    told("resume")
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


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="on SQLite a claim that waits lets nobody write"
)
def test_its_row_says_quiet_once_no_claim_is_on_its_way(atpd, record):
    """Whoever has read it there may enqueue, and this daemon will not claim it."""
    daemon = atpd(processes=1, settings={"POLL_EVERY": 30, "RENEW_EVERY": 0.2}).ready()
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    with slow_claims() as (one_is_on_its_way, go_on):
        waiting = types.note.using(run_after=timedelta(seconds=1)).enqueue(path=str(record))
        get_store().tell()
        one_is_on_its_way()
        told("quiet")
        daemon.wait_for_fact("went_quiet")
        renewed = Daemon.objects.get().seen
        wait_for(lambda: Daemon.objects.filter(seen__gt=renewed).exists(), what="a renewal")
        assert Daemon.objects.get().mode == Mode.RUNNING
        go_on()
    in_mode(Mode.QUIET)
    told("resume")
    assert waiting.wait(DEADLINE).state == State.FINISHED


def test_stop(atpd, record, flag):
    """What runs gets its grace; its row says what it does meanwhile; who has nothing to do ends."""
    idle, quiet = atpd(processes=1).ready(), atpd(processes=1).ready()
    told("quiet", Daemon.objects.get(pid=quiet.pid))
    in_mode(Mode.QUIET)
    for row in Daemon.objects.all():
        told("stop", row)
    assert (idle.wait(), quiet.wait()) == (0, 0)
    running = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "20", processes=1)
    record.wait_for("start")
    told("stop")
    assert not in_mode(Mode.STOPPING).idle
    assert daemon.wait_for_fact("daemon_stopping")["why"] == "it was told to"
    flag.touch()
    assert daemon.wait() == 0
    assert running.wait(0).state == State.FINISHED
    assert not Daemon.objects.exists()


@pytest.mark.parametrize("order", ["quiet", "resume"])
def test_what_was_said_while_there_was_no_dispatcher(atpd, record, order):
    """It is found by the next one."""
    daemon = atpd(processes=1).ready()
    if order == "resume":
        told("quiet")
        in_mode(Mode.QUIET)
    else:
        wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    pid, old = daemon.dispatcher(), Daemon.objects.get()
    with stopped_between_transactions(pid):
        told(order)
        instance = types.note.enqueue(path=str(record))
        os.kill(pid, signal.SIGKILL)
    daemon.wait_for_fact("rejoined")
    wait_for(Daemon.objects.exclude(uuid=old.uuid).exists, what="a new identity")
    if order == "resume":
        assert instance.wait(DEADLINE).state == State.FINISHED
    else:
        assert in_mode(Mode.QUIET).request == "quiet"
        # A claim of the old one may have been on its way to the server, which went on with it.
        enqueued, *later = story(instance)
        assert enqueued == "enqueue→ACCEPTED 0"
        assert later in ([], ["claim→SCHEDULED 1", "expire→ACCEPTED 1"])
