"""Cancelling with real daemons: what runs ends within its grace, whatever it does; Defer."""

import os
import signal

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from atp import queue
from atp.exceptions import IllegalTransition
from atp.models import Instance, Task
from atp.rows.log import Kind
from atp.states import Reason, State
from atp.store.values import CANCEL
from atp.words import attempt_messages
from tests.app import tasks_cancel as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by, tells
from .harness import is_alive, story
from .test_deaths import stopped_between_transactions

JANE = "user jane via page"
GRACE = 1.5


def running(instance):
    """Wait until it is seen to be RUNNING."""
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)


def cancel(instance):
    """Cancel what runs; returns how long it took until it had ended, in seconds.

    As it is recorded: wait() looks at longer and longer intervals.
    """
    running(instance)
    assert queue.cancel(instance, by=JANE) == [instance]
    instance.wait(DEADLINE)
    asked = instance.log.filter(kind=Kind.ASK, detail=CANCEL).last()
    return (instance.finished - asked.time).total_seconds()


def assert_cancelled(instance, attempt=1):
    instance.refresh_from_db()
    assert (instance.state, instance.reason) == (State.FAILED, Reason.CANCELLED)
    assert (instance.attempt, instance.lost, instance.retries) == (attempt, 0, 0)
    assert not Task.objects.filter(pk=instance.pk).exists()
    asked = instance.log.get(kind=Kind.ASK, detail=CANCEL)
    assert (asked.who, asked.state) == (JANE, State.RUNNING)
    last = instance.log.transitions().last()
    assert tells(last.message, attempt_messages.cancelled(JANE))
    assert story(instance)[-1] == f"fail→FAILED {attempt}"


@pytest.mark.parametrize("name", ["sleep", "compute", "c_code", "children", "stubborn", "wraps"])
def test_whatever_it_does_it_ends(atpd, record, name):
    """Within cancel_grace plus one second, and nothing of it is left running."""
    instance = getattr(types, name).enqueue(path=str(record))
    daemon = atpd(processes=1, settings={"CANCEL_GRACE": GRACE})
    [line] = record.wait_for("start")
    took = cancel(instance)
    grace = 0.5 if name == "stubborn" else GRACE
    assert took < grace + 1
    assert_cancelled(instance)
    for pid in (line["pid"], *line.get("children", ())):
        # A worker whose handler was interrupted is replaced: something may be left halfway.
        wait_for(lambda p=pid: not is_alive(p), what="the end of its processes")
    is_killed = name in ("c_code", "stubborn")
    assert bool(daemon.facts("worker_killed")) == is_killed
    last = instance.log.transitions().last().message
    assert tells(last, attempt_messages.killed_after_grace(grace)) == is_killed
    if name in ("sleep", "compute"):
        assert len(record.lines("cleaned up")) == 1
    if name == "wraps":
        assert "the pipe broke" in instance.log.transitions().last().message
    after = types.note.enqueue(path=str(record))
    assert after.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0
    assert not daemon.facts("worker_died")


def test_what_it_had_started_is_killed_with_it_and_told(atpd, record):
    """The log says that it was killed, after which grace, and what went with it."""
    instance = types.stubborn_parent.enqueue(path=str(record))
    atpd(processes=1)
    [line] = record.wait_for("start")
    cancel(instance)
    assert_cancelled(instance)
    last = instance.log.transitions().last().message
    assert tells(last, attempt_messages.killed_after_grace(0.5))
    assert tells(last, attempt_messages.with_processes(2))
    for pid in line["children"]:
        wait_for(lambda p=pid: not is_alive(p), what="the end of its processes")


def test_what_an_interrupted_one_had_started_is_told(atpd, record):
    instance = types.children.enqueue(path=str(record))
    atpd(processes=1)
    record.wait_for("start")
    cancel(instance)
    told = "\n".join(instance.log.values_list("message", flat=True))
    words = "3 processes that it left behind were ended"
    assert is_made_by(told, attempt_messages.left_behind, words)


def test_a_cancel_is_prompt_where_the_handler_listens(atpd, record, flag):
    """Long before its grace is over; and the worker that was asked by check() works on."""
    atpd(processes=1, settings={"CANCEL_GRACE": 60})
    instance = types.sleep.enqueue(path=str(record))
    record.wait_for("start")
    assert cancel(instance) < 30
    assert_cancelled(instance)


def test_who_finishes_first_wins(atpd, record):
    """And the log says both that it was asked to be cancelled and that it FINISHED."""
    instance = types.finishes.enqueue(path=str(record))
    atpd(processes=1)
    record.wait_for("start")
    cancel(instance)
    assert (instance.state, instance.reason) == (State.FINISHED, "")
    assert queue.response(instance).value == "done"
    assert instance.log.filter(kind=Kind.ASK, detail=CANCEL).exists()
    assert story(instance)[-2:] == ["start→RUNNING 1", "finish→FINISHED 1"]


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite has one writer: the cancel waits for its end"
)
@pytest.mark.parametrize("how", ["sleep", "stubborn"])
def test_what_a_transactional_one_wrote_is_rolled_back(atpd, record, how):
    """G7: CANCELLED, and nothing of it stays."""
    instance = types.writes.enqueue(path=str(record), how=how)
    daemon = atpd(processes=1, settings={"CANCEL_GRACE": 0.5})
    record.wait_for("start")
    cancel(instance)
    assert_cancelled(instance)
    assert not Group.objects.exists()
    assert daemon.stop() == 0
    assert not instance.log.filter(kind__in=(Kind.LATE, Kind.REFUSED)).exists()


def test_what_is_claimed_and_not_started_is_handed_back_and_ends(atpd, record, flag):
    """Behind a long one in the same worker's hands: it is never run."""
    atpd(processes=1, settings={"POLL_EVERY": 0.1})
    first = types.note.enqueue(path=str(record), until=str(flag))
    record.wait_for("ran")
    with_it = types.note.enqueue_many({"path": str(record)} for _ in range(3))
    queue.cancel(*with_it, by=JANE)
    for instance in with_it:
        instance.wait(DEADLINE)
        assert instance.reason == Reason.CANCELLED
    flag.touch()
    assert first.wait(DEADLINE).state == State.FINISHED
    assert len(record.lines("ran")) == 1


def test_a_daemon_that_stops_meanwhile(atpd, record):
    """What was to be cancelled is not handed back to be run again."""
    instance = types.stubborn.enqueue(path=str(record))
    daemon = atpd("--grace", "0.1", processes=1)
    record.wait_for("start")
    running(instance)
    queue.cancel(instance, by=JANE)
    assert daemon.stop() == 0
    instance.refresh_from_db()
    assert instance.reason == Reason.CANCELLED


def test_a_daemon_that_dies_meanwhile(atpd, record):
    """G1 and G2 end where somebody wants them to: whoever sweeps honours the request."""
    daemon = atpd(processes=1, settings={"CANCEL_GRACE": 60, "LEASE": 5, "KILL_AFTER": 4} | SOON)
    instance = types.sleep.enqueue(path=str(record))
    [line] = record.wait_for("start")
    running(instance)
    dispatcher = daemon.dispatcher()
    with stopped_between_transactions(dispatcher):
        queue.cancel(instance, by=JANE)
        daemon.process.kill()
        os.kill(dispatcher, signal.SIGKILL)
    wait_for(lambda: not is_alive(line["pid"]), what="the end of its worker")
    atpd(processes=1, settings={"LEASE": 5, "KILL_AFTER": 4} | SOON)
    instance.wait(DEADLINE)
    assert instance.reason == Reason.CANCELLED
    assert story(instance)[-2:] == ["expire→ACCEPTED 1", "fail→FAILED 1"]
    assert tells(instance.log.last().message, attempt_messages.cancelled(JANE))


SOON = {"RENEW_EVERY": 0.5, "STATEMENT_TIMEOUT": 2.0}


def test_many_at_once(atpd, record):
    """Each interrupt hits the attempt that it is meant for, and no other (G5)."""
    atpd(processes=2, settings={"CANCEL_GRACE": 10})
    instances = types.note.enqueue_many({"path": str(record)} for _ in range(300))
    to_end = instances[::3]
    asked = 0
    for instance in to_end:
        try:
            asked += len(queue.cancel(instance, by=JANE))
        except IllegalTransition:
            continue
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    kept = {instance.pk for instance in instances} - {instance.pk for instance in to_end}
    rows = Instance.objects.in_bulk([instance.pk for instance in instances])
    assert {rows[key].state for key in kept} == {State.FINISHED}
    for instance in to_end:
        row = rows[instance.pk]
        assert row.state == State.FINISHED or row.reason == Reason.CANCELLED
    assert not Instance.objects.exclude(lost=0, restarts=0).exists()


def test_delete_waits_for_what_runs(atpd, record):
    """G12: cancelled first, then removed."""
    instance = types.sleep.enqueue(path=str(record))
    atpd(processes=1)
    record.wait_for("start")
    running(instance)
    assert queue.delete(instance, by=JANE, cancel=True, wait=15) == 1
    assert not Instance.objects.exists()
    assert len(record.lines("cleaned up")) == 1


# Defer


def test_defer_spends_nothing(atpd, record):
    """However often, and with no retries allowed."""
    instance = types.defer.enqueue(path=str(record), times=3)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 4)
    assert (instance.retries, instance.restarts, instance.lost) == (0, 0, 0)
    assert story(instance).count("defer→ACCEPTED 1") == 1
    deferred = instance.log.filter(kind="defer").first()
    assert deferred.message == "the mirror is away"


def test_a_deferred_one_waits_and_can_be_cancelled(atpd, record):
    instance = types.defer.enqueue(path=str(record), after=3600)
    atpd(processes=1)
    wait_for(lambda: instance.log.filter(kind="defer").exists())
    assert queue.task(instance).due_at > instance.created
    assert queue.cancel(instance, by=JANE) == []
    assert (instance.state, instance.reason) == (State.FAILED, Reason.CANCELLED)
    assert len(record.lines("ran")) == 1


def test_defer_rolls_a_transactional_one_back(atpd):
    """G7"""
    instance = types.defer_in_a_transaction.enqueue()
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert Group.objects.get().name.startswith("2 of")
