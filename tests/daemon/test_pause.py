"""Pausing and resuming with real daemons (RFC 14's PAUSED)."""

import os
import signal
from pathlib import Path

import pytest

from atp import messages, queue
from atp.exceptions import IllegalTransition
from atp.models import Daemon, Kind
from atp.reports.timeline import timeline
from atp.states import Event, Reason, State
from tests.app import tasks_daemon, tasks_pause
from tests.helpers import DEADLINE, stays, wait_for

from ..nonsense import is_made_by, tells
from .harness import story
from .scenario import wait_until

JANE = "user jane via page"
STEPS = sum(range(100))


def is_in(state, instance):
    instance.refresh_from_db()
    return instance.state == state


def paused(record, kind, count=100):
    """Pause what a daemon runs; it does not come to its end before, however long that takes."""
    may_end = Path(f"{record}.may_end")
    may_end.unlink(missing_ok=True)
    before = len(record.lines("tick"))
    inputs = {"path": str(record), "count": count, "until": str(may_end)}
    instance = getattr(tasks_pause, kind).enqueue(**inputs)
    record.wait_for("tick", before + 5)
    pause(instance)
    may_end.touch()
    return instance


def pause(instance):
    wait_until(State.RUNNING, instance)
    queue.pause(instance, by=JANE)
    wait_until(State.PAUSED, instance)


def paused_in(daemon):
    """The workers of which the daemon's row says that their task is paused."""
    row = Daemon.objects.get(pid=daemon.pid)
    return [worker for worker in row.workers if worker.get("paused")]


@pytest.mark.parametrize("kind", ["steps", pytest.param("deaf", marks=pytest.mark.long)])
def test_paused_task_gives_up_its_place_and_waits_for_one_to_resume(atpd, record, flag, kind):
    """It makes no progress, its time-out stands still, and its result is right."""
    daemon = atpd(processes=1)
    instance = paused(record, kind)
    child = Path(f"{record}.child")

    def progress():
        return len(record.lines("tick")), child.exists() and child.stat().st_size

    before = progress()
    other = tasks_daemon.noop.enqueue()
    wait_for(lambda: [w["instance"] for w in paused_in(daemon)] == [str(instance.uuid)])
    stays(lambda: progress() == before, 7)  # longer than its time-out
    assert is_in(State.FINISHED, other)
    long = tasks_daemon.wait.enqueue(path=str(record), until=str(flag), number=1)
    wait_until(State.RUNNING, long)
    queue.resume(instance, by=JANE)
    stays(lambda: progress() == before, 2)
    assert is_in(State.PAUSED, instance)
    flag.touch()
    assert long.wait(DEADLINE).state == State.FINISHED
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.lost) == (State.FINISHED, 1, 0)
    assert instance.response.value == STEPS
    events = [event.partition("→")[0] for event in story(instance)[-4:]]
    assert events == ["start", "pause", "resume", "finish"]
    asked = [(row.kind, row.detail) for row in instance.log.filter(who=JANE)]
    assert asked == [(Kind.ASK, "pause"), (Kind.ASK, "resume")]
    [attempt] = timeline(instance).attempts
    assert (instance.finished - instance.started - attempt.ran).total_seconds() > 6
    # The worker that took its place has made room again.
    wait_for(lambda: len(daemon.workers()) == 1)
    assert daemon.stop() == 0


def test_paused_task_can_be_killed_cancelled_or_time_out(atpd, record):
    """G2, G5: a killed one is charged like any other, and runs again."""
    daemon = atpd(processes=1, settings={"CANCEL_GRACE": 1.0})
    instance = paused(record, "deaf")
    [line] = record.lines("start")
    os.kill(line["pid"], signal.SIGKILL)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.restarts) == (State.FINISHED, 2, 1)
    assert "expire→ACCEPTED 1" in story(instance)
    wait_for(lambda: len(daemon.workers()) == 1)

    instance = paused(record, "deaf")
    queue.cancel(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.CANCELLED)
    assert story(instance)[-2:] == ["resume→RUNNING 1", "fail→FAILED 1"]
    told = instance.log.get(kind=Event.RESUME).message
    words = f"resumed so that it can end: cancelled by {JANE}"
    assert is_made_by(told, messages.resumed_to_end, words)
    assert tasks_daemon.noop.enqueue().wait(DEADLINE).state == State.FINISHED

    # What is told is the time-out that it has, not when that was over.
    instance = tasks_pause.endless.enqueue(path=str(record))
    pause(instance)
    stays(lambda: is_in(State.PAUSED, instance), 1.6)
    queue.resume(instance, by=JANE)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.STALE)
    assert tells(instance.log.get(kind="expire").message, messages.timed_out(1.5))


def test_paused_tasks_are_handed_back_uncharged_when_their_daemon_stops(atpd, record):
    """G10."""
    daemon = atpd(processes=1, settings={"GRACE": 0.5})
    instances = [paused(record, kind, count=500) for kind in ("steps", "deaf")]
    assert daemon.stop() == 0
    words = "resumed so that it can end: the daemon is stopping"
    for instance in instances:
        instance.refresh_from_db()
        assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 0, 0)
        assert queue.task(instance).request == ""
        # That it has gone on nobody had asked for, and the log says what for.
        for row in instance.log.filter(kind=Event.RESUME):
            assert is_made_by(row.message, messages.resumed_to_end, words)
        with pytest.raises(IllegalTransition, match=r"cannot be paused: it is ACCEPTED\.$"):
            queue.pause(instance, by=JANE)


def test_handler_pauses_itself_outside_of_transactions(atpd, record, flag, tmp_path):
    """``with context.paused()``; and a pause can be taken back before it begins."""
    by_itself = tasks_pause.by_itself.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=1)
    wait_until(State.PAUSED, by_itself)
    assert by_itself.log.get(kind=Event.PAUSE).message == "waiting for the licence"
    with pytest.raises(IllegalTransition, match="cannot be paused: it is PAUSED"):
        queue.pause(by_itself, by=JANE)
    in_transaction = tasks_pause.in_transaction.enqueue()
    assert in_transaction.wait(DEADLINE).state == State.FAILED
    assert "PausedInTransaction" in in_transaction.log.get(kind="fail").message
    stays(lambda: is_in(State.PAUSED, by_itself), 3.5)  # longer than its time-out
    deaf = tasks_daemon.stubborn.enqueue(path=str(tmp_path / "stubborn"), until=str(flag))
    wait_until(State.RUNNING, deaf)
    queue.pause(deaf, by=JANE)
    with pytest.raises(IllegalTransition, match="is being paused already"):
        queue.pause(deaf, by=JANE)
    queue.resume(deaf, by=JANE)
    with pytest.raises(IllegalTransition, match="cannot be resumed: it is RUNNING"):
        queue.resume(deaf, by=JANE)
    flag.touch()
    assert deaf.wait(DEADLINE).state == State.FINISHED
    assert "pause→PAUSED 1" not in story(deaf)
    by_itself.wait(DEADLINE)
    assert (by_itself.state, by_itself.attempt) == (State.FINISHED, 1)
    assert by_itself.response.value == "done"
    wait_for(lambda: len(daemon.workers()) == 1)
