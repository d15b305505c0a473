"""Cancelling with real daemons: what runs ends within its grace, whatever it does; Defer."""

import contextlib

from django.contrib.auth.models import Group
from django.db import connection

from atp import messages, queue
from atp.commands import CANCEL
from atp.exceptions import IllegalTransition
from atp.models import Instance, Kind, Task
from atp.states import Reason, State
from tests import patience
from tests.app import tasks_cancel as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by, tells
from .harness import Record, is_alive, story
from .scenario import wait_until

JANE = "user jane via page"
GRACE = 1.5


def cancel(instance):
    """Cancel what runs; returns how long it took until it had ended, in seconds.

    As it is recorded: wait() looks at longer and longer intervals.
    """
    wait_until(State.RUNNING, instance)
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
    assert tells(last.message, messages.cancelled(JANE))
    assert story(instance)[-1] == f"fail→FAILED {attempt}"


KILLED = {"c_code", "stubborn", "stubborn_parent"}
KINDS = ["sleep", "compute", "c_code", "children", "stubborn", "stubborn_parent", "wraps"]


def test_cancelled_handlers_end_within_their_grace_with_all_their_processes(atpd, tmp_path):
    """Whatever they do: within cancel_grace plus one second."""
    records = {name: Record(tmp_path / name) for name in KINDS}
    instances = {name: getattr(types, name).enqueue(path=str(records[name])) for name in KINDS}
    daemon = atpd(processes=len(KINDS), settings={"CANCEL_GRACE": GRACE})
    lines = {name: record.wait_for("start")[0] for name, record in records.items()}
    for name, instance in instances.items():
        grace = 0.5 if name.startswith("stubborn") else GRACE
        assert cancel(instance) < grace + patience.factor(), name
        assert_cancelled(instance)
        for pid in (lines[name]["pid"], *lines[name].get("children", ())):
            # A worker whose handler was interrupted is replaced: something may be left halfway.
            wait_for(lambda p=pid: not is_alive(p), what=f"the end of the processes of {name}")
        last = instance.log.transitions().last().message
        assert tells(last, messages.killed_after_grace(grace)) == (name in KILLED), name
    assert len(daemon.facts("worker_killed")) == len(KILLED)
    for name in ("sleep", "compute"):
        assert len(records[name].lines("cleaned up")) == 1
    assert "the pipe broke" in last
    told = "\n".join(instances["children"].log.values_list("message", flat=True))
    words = "3 processes that it left behind were ended"
    assert is_made_by(told, messages.processes_left_behind, words)
    last = instances["stubborn_parent"].log.transitions().last().message
    assert tells(last, messages.with_processes(2))
    assert types.note.enqueue(path=str(tmp_path / "after")).wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0
    assert not daemon.facts("worker_died")


def test_cancel_interrupts_a_handler_long_before_its_grace_ends(atpd, record, flag):
    """G7, G12: so does a delete. A handler may finish all the same. What waits never runs."""
    atpd(processes=1, settings={"CANCEL_GRACE": 60, "POLL_EVERY": 0.1})
    instance = types.sleep.enqueue(path=str(record))
    record.wait_for("start")
    assert cancel(instance) < 30
    assert_cancelled(instance)
    deleted = types.sleep.enqueue(path=str(record))
    record.wait_for("start", 2)
    wait_until(State.RUNNING, deleted)
    assert queue.delete(deleted, by=JANE, cancel=True, wait=30) == 1
    assert not Instance.objects.filter(pk=deleted.pk).exists()
    assert len(record.lines("cleaned up")) == 2

    if connection.vendor != "sqlite":  # its one writer is the handler, for which a cancel waits
        # G7: nothing stays of what a transactional one has written.
        writing = types.writes.enqueue(path=str(record))
        record.wait_for("start", 3)
        cancel(writing)
        assert_cancelled(writing)
        assert not Group.objects.exists()
        assert not writing.log.filter(kind__in=(Kind.LATE, Kind.REFUSED)).exists()

    begun = len(record.lines("start"))
    done = types.finishes.enqueue(path=str(record))
    record.wait_for("start", begun + 1)
    cancel(done)
    assert (done.state, done.reason) == (State.FINISHED, "")
    assert queue.response(done).value == "done"
    assert done.log.filter(kind=Kind.ASK, detail=CANCEL).exists()
    assert story(done)[-2:] == ["start→RUNNING 1", "finish→FINISHED 1"]

    first = types.note.enqueue(path=str(record), until=str(flag))
    record.wait_for("ran")
    behind = types.note.enqueue_many({"path": str(record)} for _ in range(3))
    queue.cancel(*behind, by=JANE)
    for each in behind:
        assert each.wait(DEADLINE).reason == Reason.CANCELLED
    flag.touch()
    assert first.wait(DEADLINE).state == State.FINISHED
    assert len(record.lines("ran")) == 1


def test_many_cancels_at_once_interrupt_only_their_own_attempts(atpd, record):
    """G5."""
    atpd(processes=2, settings={"CANCEL_GRACE": 10})
    instances = types.note.enqueue_many({"path": str(record)} for _ in range(150))
    to_end = instances[::3]
    for instance in to_end:
        with contextlib.suppress(IllegalTransition):  # it has ended already
            queue.cancel(instance, by=JANE)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    kept = {instance.pk for instance in instances} - {instance.pk for instance in to_end}
    rows = Instance.objects.in_bulk([instance.pk for instance in instances])
    assert {rows[key].state for key in kept} == {State.FINISHED}
    for instance in to_end:
        row = rows[instance.pk]
        assert row.state == State.FINISHED or row.reason == Reason.CANCELLED
    assert not Instance.objects.exclude(lost=0, restarts=0).exists()


def test_defer_is_never_charged_and_rolls_back_its_transaction(atpd, record):
    """G7: however often, and with no retries allowed."""
    instance = types.defer.enqueue(path=str(record), times=3)
    transactional = types.defer_in_a_transaction.enqueue()
    waiting = types.defer.enqueue(path=f"{record}-waiting", after=3600)
    atpd(processes=1)
    for each in (instance, transactional):
        each.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 4)
    assert (instance.retries, instance.restarts, instance.lost) == (0, 0, 0)
    assert story(instance).count("defer→ACCEPTED 1") == 1
    assert instance.log.filter(kind="defer").first().message == "the mirror is away"
    assert (transactional.state, transactional.attempt) == (State.FINISHED, 2)
    assert Group.objects.get().name.startswith("2 of")
    wait_for(lambda: waiting.log.filter(kind="defer").exists())
    assert queue.task(waiting).due_at > waiting.created
    assert queue.cancel(waiting, by=JANE) == []
    assert (waiting.state, waiting.reason) == (State.FAILED, Reason.CANCELLED)
