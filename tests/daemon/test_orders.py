"""Daemons are told to go quiet, to resume, to stop (G10)."""

import os
import signal
from datetime import timedelta

import pytest
from django.db import connection

from atp import queue
from atp.models import Daemon, LogRecord, Task
from atp.reports import overview
from atp.rows.log import Kind
from atp.states import State
from atp.store import get_store
from atp.words.orders import Mode
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from .harness import story
from .slow_claims import slow_claims
from .test_deaths import stopped_between_transactions

# What an operator expects: a second, and what a busy machine takes.
SOON = 5


def told(order, row=None):
    return queue.command(row or Daemon.objects.get(), order, by="ann via tests")


def in_mode(mode, timeout=SOON):
    return wait_for(
        lambda: Daemon.objects.filter(mode=mode).first(), timeout, what=f"a {mode} daemon"
    )


def test_quiet_and_resume(atpd, record, flag):
    """What runs goes on, what has not started is handed back, and nothing more is claimed."""
    running = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=1)
    record.wait_for("start")
    told("quiet")
    row = in_mode(Mode.QUIET)
    assert (row.request, row.idle) == ("quiet", False)
    waiting = types.note.enqueue(path=str(record))
    flag.touch()
    assert running.wait(DEADLINE).state == State.FINISHED
    # It looks at the queue, and renews, and takes nothing.
    seen = row.seen
    wait_for(lambda: Daemon.objects.filter(seen__gt=seen).exists(), what="a renewal")
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempt) == (State.ACCEPTED, 0)
    assert not Daemon.objects.get().idle
    told("resume")
    assert waiting.wait(SOON).state == State.FINISHED
    assert in_mode(Mode.RUNNING).request == ""
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    assert daemon.stop() == 0
    assert len(daemon.facts("went_quiet")) == len(daemon.facts("resumed")) == 1
    about = LogRecord.objects.filter(instance=None, subject=f"daemon:{row}").order_by("pk")
    said = [(r.kind, r.detail, r.who) for r in about]
    assert (Kind.ORDER, "quiet", "ann via tests") in said
    assert (Kind.ORDER, "resume", "ann via tests") in said


def test_quiet_hands_back_what_has_not_started(atpd, record, flag):
    """G8: it keeps its place, and no budget is charged."""
    types.wait.enqueue(path=str(record), until=str(flag.parent))  # its usual time: short
    atpd(processes=1)
    wait_for(lambda: not Task.objects.exists())
    first, *others = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(20)
    )
    wait_for(lambda: len(record.lines("start")) == 2)
    told("quiet")
    in_mode(Mode.QUIET)
    wait_for(lambda: Task.objects.claimed().count() == 1, what="all but one handed back")
    for instance in others:
        instance.refresh_from_db()
        assert (instance.state, instance.lost) == (State.ACCEPTED, 0)
    flag.touch()
    told("resume")
    for instance in (first, *others):
        assert instance.wait(DEADLINE).state == State.FINISHED
    numbers = [line["number"] for line in record.lines("start")][1:]
    assert numbers == list(range(20))


def test_quiet_under_load(atpd, record):
    """However busy it is, it hears of it."""
    types.noop.enqueue_many({} for _ in range(30_000))
    atpd(processes=2)
    wait_for(lambda: LogRecord.objects.filter(kind="finish").exists(), what="the first end")
    told("quiet")
    in_mode(Mode.QUIET)
    left = wait_for(lambda: not Task.objects.claimed().exists() and Task.objects.count())
    assert left
    told("resume")
    wait_for(lambda: Task.objects.count() < left, what="it to go on")


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
    assert waiting.wait(SOON).state == State.FINISHED


def test_stop(atpd, record, flag):
    """As after SIGTERM: what runs gets its grace; and its row says what it does meanwhile."""
    running = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "20", processes=1)
    record.wait_for("start")
    told("stop")
    row = in_mode(Mode.STOPPING)
    assert not row.idle
    assert daemon.wait_for_fact("daemon_stopping")["why"] == "it was told to"
    flag.touch()
    assert daemon.wait() == 0
    assert running.wait(0).state == State.FINISHED
    assert not Daemon.objects.exists()


def test_stop_hands_back_after_the_grace(atpd, record, flag):
    stubborn = types.stubborn.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "0.5", processes=1)
    record.wait_for("start")
    told("stop")
    assert daemon.wait() == 0
    stubborn.refresh_from_db()
    assert (stubborn.state, stubborn.lost, stubborn.restarts) == (State.ACCEPTED, 0, 0)


def test_an_idle_one_and_a_quiet_one_stop(atpd):
    idle, quiet = atpd(processes=1).ready(), atpd(processes=1).ready()
    row = next(row for row in overview.daemons() if row.pid == quiet.pid)
    told("quiet", row)
    in_mode(Mode.QUIET)
    for row in overview.daemons():
        told("stop", row)
    assert (idle.wait(), quiet.wait()) == (0, 0)


def test_a_signal_shows_on_the_row_at_once(atpd, record, flag):
    """Until it has gone it is told from one that works."""
    types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd("--grace", "20", processes=1)
    record.wait_for("start")
    daemon.signal()
    assert in_mode(Mode.STOPPING).request == ""
    flag.touch()
    assert daemon.wait() == 0


def test_a_quiet_one_stops_by_signal_too(atpd):
    daemon = atpd(processes=1).ready()
    told("quiet")
    in_mode(Mode.QUIET)
    assert daemon.stop() == 0


def test_it_is_still_quiet_after_its_dispatcher_was_killed(atpd, record):
    daemon = atpd(processes=1).ready()
    told("quiet")
    old = in_mode(Mode.QUIET)
    waiting = types.note.enqueue(path=str(record))
    os.kill(daemon.dispatcher(), signal.SIGKILL)
    daemon.wait_for_fact("rejoined")
    new = wait_for(lambda: Daemon.objects.filter(mode=Mode.QUIET).exclude(uuid=old.uuid).first())
    assert new.request == "quiet"
    waiting.refresh_from_db()
    assert (waiting.state, story(waiting)) == (State.ACCEPTED, ["enqueue→ACCEPTED 0"])
    told("resume")
    assert waiting.wait(SOON).state == State.FINISHED


@pytest.mark.parametrize("order", ["quiet", "resume"])
def test_what_was_said_while_there_was_no_dispatcher(atpd, record, order):
    """It is found by the next one."""
    daemon = atpd(processes=1).ready()
    if order == "resume":
        told("quiet")
        in_mode(Mode.QUIET)
    else:
        wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    pid = daemon.dispatcher()
    with stopped_between_transactions(pid):
        told(order)
        instance = types.note.enqueue(path=str(record))
        os.kill(pid, signal.SIGKILL)
    daemon.wait_for_fact("rejoined")
    if order == "resume":
        assert instance.wait(DEADLINE).state == State.FINISHED
    else:
        in_mode(Mode.QUIET)
        # A claim of the old one may have been on its way to the server, which went on with it.
        enqueued, *later = story(instance)
        assert enqueued == "enqueue→ACCEPTED 0"
        assert later in ([], ["claim→SCHEDULED 1", "expire→ACCEPTED 1"])


def test_a_changed_instance_is_run_at_once(atpd, record):
    """G15: "run now" wakes a daemon that has nothing to do."""
    from datetime import timedelta

    later = types.note.using(run_after=timedelta(hours=1)).enqueue(path=str(record))
    atpd(processes=1, settings={"POLL_EVERY": 30})
    wait_for(lambda: Daemon.objects.filter(idle=True).exists(), what="an idle daemon")
    queue.change(later, due=timedelta(), by="ann")
    assert later.wait(SOON).state == State.FINISHED
