"""Pausing and resuming with real daemons (RFC 14's PAUSED)."""

import os
import signal
from pathlib import Path

import pytest

from atp import queue
from atp.exceptions import IllegalTransition
from atp.models import Daemon
from atp.reports.timeline import timeline
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.words import attempt_messages
from tests.app import tasks_daemon, tasks_pause
from tests.helpers import DEADLINE, stays, wait_for

from ..nonsense import is_made_by, tells
from .harness import story

JANE = "user jane via page"
STEPS = sum(range(100))
KINDS = ["steps", "deaf"]


def is_in(state, instance):
    instance.refresh_from_db()
    return instance.state == state


def paused(atpd, record, kind, count=100, **settings):
    """Start a daemon with one worker, and pause what it runs; return both.

    It does not come to its end before, however long that takes.
    """
    may_end = Path(f"{record}.may_end")
    kinds = {"steps": tasks_pause.steps, "deaf": tasks_pause.deaf}
    instance = kinds[kind].enqueue(path=str(record), count=count, until=str(may_end))
    daemon = atpd(processes=1, settings=settings or None)
    record.wait_for("tick", 5)
    wait_for(lambda: is_in(State.RUNNING, instance))
    queue.pause(instance, by=JANE)
    wait_for(lambda: is_in(State.PAUSED, instance))
    may_end.touch()
    return instance, daemon


def paused_in(daemon):
    """The workers of which the daemon's row says that their task is paused."""
    row = Daemon.objects.get(pid=daemon.pid)
    return [worker for worker in row.workers if worker.get("paused")]


@pytest.mark.parametrize("kind", KINDS)
def test_paused_and_on(atpd, record, kind):
    """It makes no progress, another task has its place, its time-out waits, its result is right."""
    instance, daemon = paused(atpd, record, kind)
    child = Path(f"{record}.child")
    before = len(record.lines("tick")), child.exists() and child.stat().st_size
    other = tasks_daemon.noop.enqueue()
    wait_for(lambda: [w["instance"] for w in paused_in(daemon)] == [str(instance.uuid)])
    stays(
        lambda: (len(record.lines("tick")), child.exists() and child.stat().st_size) == before,
        10,  # longer than its time-out
    )
    assert is_in(State.PAUSED, instance)
    assert is_in(State.FINISHED, other)
    queue.resume(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.lost) == (State.FINISHED, 1, 0)
    assert instance.response.value == STEPS
    assert [event.partition("→")[0] for event in story(instance)[-4:]] == [
        "start",
        "pause",
        "resume",
        "finish",
    ]
    asked = [(row.kind, row.detail) for row in instance.log.filter(who=JANE)]
    assert asked == [(Kind.ASK, "pause"), (Kind.ASK, "resume")]
    [attempt] = timeline(instance).attempts
    assert (instance.finished - instance.started - attempt.ran).total_seconds() > 9
    # The worker that took its place has made room again.
    wait_for(lambda: len(daemon.workers()) == 1)
    assert daemon.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_while_paused(atpd, record, kind):
    instance, _ = paused(atpd, record, kind, CANCEL_GRACE=1.0)
    queue.cancel(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.CANCELLED)
    assert story(instance)[-2:] == ["resume→RUNNING 1", "fail→FAILED 1"]
    told = instance.log.get(kind=Event.RESUME).message
    words = f"resumed so that it can end: cancelled by {JANE}"
    assert is_made_by(told, attempt_messages.resumed_to_end, words)
    assert tasks_daemon.noop.enqueue().wait(DEADLINE).state == State.FINISHED


@pytest.mark.parametrize("kind", KINDS)
def test_its_worker_dies_while_paused(atpd, record, kind):
    """G2, G5: it is charged as any other, and runs again."""
    instance, daemon = paused(atpd, record, kind)
    [line] = record.lines("start")
    os.kill(line["pid"], signal.SIGKILL)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.restarts) == (State.FINISHED, 2, 1)
    assert "expire→ACCEPTED 1" in story(instance)
    wait_for(lambda: len(daemon.workers()) == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_its_daemon_stops(atpd, record, kind):
    """G10: what is paused is handed back, and nothing is charged."""
    instance, daemon = paused(atpd, record, kind, count=500, GRACE=0.5)
    daemon.signal()
    assert daemon.wait() == 0
    instance.refresh_from_db()
    assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 0, 0)
    assert queue.task(instance).request == ""
    # That it has gone on nobody had asked for, and the log says what for.
    words = "resumed so that it can end: the daemon is stopping"
    for row in instance.log.filter(kind=Event.RESUME):
        assert is_made_by(row.message, attempt_messages.resumed_to_end, words)
    with pytest.raises(IllegalTransition, match=r"cannot be paused: it is ACCEPTED\.$"):
        queue.pause(instance, by=JANE)


def test_its_time_is_over_after_a_pause(atpd, record):
    """What is told is the time-out that it has, not when that was over."""
    instance = tasks_pause.endless.enqueue(path=str(record))
    atpd(processes=1)
    record.wait_for("tick")
    wait_for(lambda: is_in(State.RUNNING, instance))
    queue.pause(instance, by=JANE)
    wait_for(lambda: is_in(State.PAUSED, instance))
    stays(lambda: is_in(State.PAUSED, instance), 1.6)
    queue.resume(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.STALE)
    assert tells(instance.log.get(kind="expire").message, attempt_messages.timed_out(1.5))


def test_released_while_paused(atpd, record):
    instance, _ = paused(atpd, record, "steps")
    queue.release(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.lost) == (State.FINISHED, 2, 0)


def test_resuming_waits_for_a_place(atpd, record, flag):
    """There are never more tasks at work than there are places."""
    instance, daemon = paused(atpd, record, "steps")
    long = tasks_daemon.wait.enqueue(path=str(record), until=str(flag), number=1)
    wait_for(lambda: is_in(State.RUNNING, long))
    queue.resume(instance, by=JANE)
    before = len(record.lines("tick"))
    stays(lambda: len(record.lines("tick")) == before, 2)
    assert is_in(State.PAUSED, instance)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert long.wait(DEADLINE).state == State.FINISHED
    wait_for(lambda: len(daemon.workers()) == 1)


def test_by_itself(atpd, record, flag):
    """``with context.paused()``: another has its place, its time does not count."""
    instance = tasks_pause.by_itself.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=1)
    wait_for(lambda: is_in(State.PAUSED, instance))
    assert instance.log.get(kind=Event.PAUSE).message == "waiting for the licence"
    assert tasks_daemon.noop.enqueue().wait(DEADLINE).state == State.FINISHED
    stays(lambda: is_in(State.PAUSED, instance), 3.5)  # longer than its time-out
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.response.value) == (State.FINISHED, "done")
    assert instance.attempt == 1
    wait_for(lambda: len(daemon.workers()) == 1)


def test_an_operator_keeps_it_paused(atpd, record, flag):
    """What has paused by itself goes on when both would have it so."""
    instance = tasks_pause.by_itself.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    wait_for(lambda: is_in(State.PAUSED, instance))
    with pytest.raises(IllegalTransition, match="cannot be paused: it is PAUSED"):
        queue.pause(instance, by=JANE)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_not_in_a_transaction(atpd):
    instance = tasks_pause.in_transaction.enqueue()
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert instance.state == State.FAILED
    assert "PausedInTransaction" in instance.log.get(kind="fail").message


def test_asked_and_taken_back(atpd, record):
    """A wish that was taken back before the handler looked."""
    instance = tasks_daemon.stubborn.enqueue(path=str(record), until=f"{record}.end")
    atpd(processes=1)
    wait_for(lambda: is_in(State.RUNNING, instance))
    queue.pause(instance, by=JANE)
    with pytest.raises(IllegalTransition, match="has been asked to be paused already"):
        queue.pause(instance, by=JANE)
    queue.resume(instance, by=JANE)
    with pytest.raises(IllegalTransition, match="cannot be resumed: it is RUNNING"):
        queue.resume(instance, by=JANE)
    Path(f"{record}.end").touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert "pause→PAUSED 1" not in story(instance)
