"""Transactional Types: what a handler writes is committed with its end, or not at all (G7)."""

import os
import random
import signal
import time
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from atp.daemon.shared.channel import Closed
from atp.daemon.shared.outcome import Kind, Outcome
from atp.daemon.worker import transactions
from atp.models import Daemon, Instance, Task
from atp.rows.log import Kind as LogKind
from atp.states import Event, Reason, State
from atp.store import get_store
from atp.store.values import Move
from atp.words import attempt_messages
from tests.app import tasks_transactional as types
from tests.helpers import DEADLINE, Thread, child_environment, stays, wait_for

from ..nonsense import is_made_by
from ..samples import claimed
from . import harness
from .harness import story
from .proxy import SwallowingProxy

# Some of them answer with more than goes into the database.
pytestmark = pytest.mark.usefixtures("media")

ONCE = [
    "enqueue→ACCEPTED 0",
    "claim→SCHEDULED 1",
    "start→RUNNING 1",
    "finish→FINISHED 1",
]


def needs_many_writers():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: while the handler is in its transaction, nobody writes")


def is_running(instance):
    instance.refresh_from_db()
    return instance.state == State.RUNNING


def messages(instance):
    return [row.message for row in instance.log.filter(kind=LogKind.MESSAGE)]


def test_it_is_committed_with_its_end(atpd, record, flag, media):
    """G7: RUNNING is seen while it runs; rows, Response and log come with FINISHED."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag), number=5)
    atpd(processes=1)
    record.wait_for("start")
    assert is_running(instance)
    assert types.written() == []
    assert messages(instance) == []
    flag.touch()
    instance.wait(DEADLINE)
    assert types.written() == [5]
    assert instance.state == State.FINISHED
    assert story(instance) == ONCE
    assert messages(instance) == ["waiting"]
    assert len(instance.response.body) == 100_000
    assert instance.log.get(kind="finish").who.endswith(" worker 0")


def test_it_holds_nobody_up(atpd, record, flag):
    """G7: renewals go on and progress is seen while its transaction is open."""
    needs_many_writers()
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("start")
    wait_for(lambda: instance.refresh_from_db() or instance.progress == 0.5)
    seen = Daemon.objects.get().seen
    wait_for(lambda: Daemon.objects.get().seen > seen)

    def can_be_locked(model):
        with transaction.atomic():
            rows = model.objects.select_for_update(skip_locked=True)
            return rows.filter(pk=instance.pk).exists()

    # The daemon locks them for moments.
    wait_for(lambda: can_be_locked(Task))
    wait_for(lambda: can_be_locked(Instance))
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_what_raises_leaves_nothing_but_its_log(atpd, media):
    """G7: it has failed like any other, and its own rows were never there."""
    instance = types.raising.enqueue(number=1)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.FATAL)
    assert types.written() == []
    assert messages(instance) == ["about to refuse"]
    [file] = instance.response.files
    assert file["name"] == "refused.txt"


def test_a_broken_transaction_is_an_error(atpd):
    """G7: what a handler did not want to know of, the database does."""
    instance = types.swallowing.enqueue(number=1)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.ERROR)
    assert types.written() == []
    assert "transaction" in instance.log.get(kind="fail").message


def test_hooks_that_fail_after_the_commit(atpd, record):
    """G7: it is done, whatever comes of what was wanted done after it."""
    instance = types.hooks.enqueue(path=str(record), number=1)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert story(instance) == ONCE
    assert types.written() == [1]
    # FINISHED is part of that commit, so it is seen before the hook has run.
    assert len(record.wait_for("committed")) == 1


def test_what_is_done_after_the_commit_is_left_alone(atpd, record):
    """G7: progress at the last moment, and hooks that take their time: nobody ends them."""
    instances = types.slow_hooks.enqueue_many({"path": str(record), "number": n} for n in range(6))
    daemon = atpd(processes=3)
    record.wait_for("after", 6)
    for instance in instances:
        assert instance.wait(DEADLINE).state == State.FINISHED
        assert story(instance) == ONCE
        assert messages(instance) == []
    assert not daemon.facts("worker_killed")
    assert not daemon.facts("refused")


@pytest.mark.django_db(transaction=True)
def test_where_its_dispatcher_has_died_its_hooks_are_called(monkeypatch, caplog):
    """G7: it was committed, and nothing has failed but the report of that."""
    monkeypatch.setattr(transactions, "get_store", lambda: Mock())
    called = []

    def handler():
        transaction.on_commit(lambda: called.append(1))
        return Outcome(Kind.FINISHED)

    attempt = transactions.Transaction(claimed(1), who="", report=Mock(side_effect=Closed))
    assert attempt.run(handler).kind == Kind.CONCLUDED
    assert called == [1]
    assert caplog.records == []


@pytest.mark.parametrize("how", ["return", "exit", "raise"])
def test_a_fork_of_the_handler_ends_no_transaction(atpd, how):
    """G7: it has the same connection, and what it did there would be done to its parent."""
    instance = types.forking.enqueue(how=how)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 1)
    assert instance.response.value == "original"
    assert types.written() == [1, 2]


@pytest.mark.parametrize("fails", [False, True])
def test_of_what_is_too_much_the_last_is_kept(atpd, fails):
    """G6: it is said before the end, so it is written with the end."""
    instance = types.talking.enqueue(lines=300, fails=fails)
    daemon = atpd(processes=1, settings={"MAX_LOG_RECORDS": 50})
    instance.wait(DEADLINE)
    said = wait_for(lambda: [text for text in messages(instance) if text == "line 299"])
    assert said == ["line 299"]
    assert any("left out here" in text for text in messages(instance))
    assert len(messages(instance)) <= 51
    assert daemon.stop() == 0


def test_a_block_that_is_left_open_is_an_error(atpd):
    """G7: nothing was committed, and it is not left lying."""
    instance = types.leaving_open.enqueue(number=1)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.ERROR)
    assert "left an atomic block open" in instance.log.get(kind="fail").message
    assert types.written() == []


def test_its_time_begins_with_its_transaction(atpd):
    """G5: waiting for SQLite's one writer is not the fault of who waits."""
    instances = types.row.enqueue_many({"number": n, "seconds": 1} for n in range(4))
    daemon = atpd(processes=4, settings={"TIMEOUT": 2.5})
    for instance in instances:
        instance.wait(DEADLINE)
    assert {(i.state, i.restarts) for i in instances} == {(State.FINISHED, 0)}
    assert types.written() == [0, 1, 2, 3]
    assert not daemon.facts("worker_killed")


def test_the_answer_to_its_commit_is_lost(atpd, record, flag, monkeypatch):
    """G7: it may have been committed, so its Response is left where it is."""
    needs_many_writers()
    with SwallowingProxy() as proxy:
        own = child_environment(DATABASE_URL=proxy.url)
        monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
        instance = types.waiting.enqueue(path=str(record), until=str(flag), number=3)
        atpd(processes=1)
        record.wait_for("start")
        proxy.swallow_commit()
        flag.touch()
        assert proxy.swallowed.wait(DEADLINE)
        instance.wait(DEADLINE)
        assert story(instance) == ONCE
        assert types.written() == [3]
        assert len(instance.response.body) == 100_000
        assert messages(instance) == ["waiting"]


def test_killed_in_its_transaction(atpd, record, flag):
    """G2, G7: nothing of the first attempt is left, all of the second."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    [line] = record.wait_for("start")
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("start", 2)
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt, instance.restarts) == (State.FINISHED, 2, 1)
    assert list(Group.objects.values_list("name", flat=True)) == ["0/2"]


def test_it_dies_as_often_as_it_may(atpd):
    """G5, G7."""
    instance = types.dying.enqueue()
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason, instance.restarts) == (State.FAILED, Reason.STALE, 2)
    assert types.written() == []


def test_death_just_after_the_commit_is_not_charged(atpd):
    """G7: the Instance is read before anything is charged; no restart would be left."""
    instances = types.dying_late.enqueue_many({"number": n} for n in range(5))
    daemon = atpd(processes=2)
    for instance in instances:
        instance.wait(DEADLINE)
        assert story(instance) == ONCE
        assert (instance.restarts, instance.lost) == (0, 0)
    assert types.written() == [0, 1, 2, 3, 4]
    daemon.wait_for_fact("worker_died", 5)
    again = types.row.enqueue(number=9)
    assert again.wait(DEADLINE).state == State.FINISHED
    assert not daemon.facts("expired")
    assert not daemon.facts("rejoined")
    assert not [m for i in instances for m in messages(i)]


def test_taken_away_in_its_transaction(atpd, record, flag):
    """G4, G7: all of it is rolled back, and that is kept."""
    needs_many_writers()
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=1)
    record.wait_for("start")
    # What it says is in the database, and so is its start.
    wait_for(lambda: instance.refresh_from_db() or instance.progress == 0.5)
    lost = Move(event=Event.EXPIRE, instance=instance.pk, attempt=1, who="the test")
    assert get_store().record([lost], daemon=Daemon.objects.get().uuid) == []
    assert instance.refresh_from_db() or instance.state == State.ACCEPTED
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert list(Group.objects.values_list("name", flat=True)) == ["0/2"]
    kept = instance.log.get(kind=LogKind.LATE)
    assert (kept.attempt, kept.detail.split()[0]) == (1, Event.FINISH)
    words = "all that it wrote was rolled back"
    assert is_made_by(kept.message, attempt_messages.late, words)
    daemon.wait_for_fact("refused")


def test_it_raises_after_it_was_taken_away(atpd, record, flag):
    """G4, G7: what it wrote was rolled back then too, and nothing has happened twice."""
    needs_many_writers()
    instance = types.raising_late.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("start")
    wait_for(lambda: is_running(instance))
    lost = Move(event=Event.EXPIRE, instance=instance.pk, attempt=1, who="the test")
    assert get_store().record([lost], daemon=Daemon.objects.get().uuid) == []
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert types.written() == [0]
    kept = instance.log.get(kind=LogKind.LATE)
    assert (kept.attempt, kept.detail.split()[0]) == (1, Event.FAIL)
    words = "; all that it wrote was rolled back\nrefused"
    assert is_made_by(kept.message, attempt_messages.late, words)
    assert kept.message.endswith("\nrefused")


def test_its_connection_is_cut(atpd, record, flag):
    """G7, G11: nothing was committed, and nobody is charged for it."""
    needs_many_writers()
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    [line] = record.wait_for("start")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [line["backend"]])
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2), list(instance.log.values())
    assert (instance.retries, instance.restarts, instance.lost) == (0, 0, 0)
    assert "defer→ACCEPTED 1" in story(instance)
    assert list(Group.objects.values_list("name", flat=True)) == ["0/2"]


def test_a_sweep_does_not_wait_for_an_end_that_is_being_written(transactional_db, world):
    """G7: who has locked the Task is about to delete it."""
    needs_many_writers()
    host = world.host()
    cases = [world.bring_to(State.RUNNING, host) for _ in range(2)]
    host.lose_lease()

    def sweep():
        return get_store().sweep().expired

    with transaction.atomic():
        Task.objects.select_for_update().get(pk=cases[0].instance)
        Instance.objects.select_for_update().get(pk=cases[0].instance)
        assert Thread(sweep).result() == 1
        assert world.state(cases[0].instance) == State.RUNNING
    assert sweep() == 1
    assert world.state(cases[0].instance) == State.ACCEPTED


@pytest.mark.timeout(300)
def test_exactly_once_whatever_is_killed(atpd):
    """G7: 1,000 tasks that each leave a row, and workers killed throughout: 1,000 rows."""
    count, kills, dice = 1000, 0, random.Random(7)
    types.row.enqueue_many({"number": n, "pause": 0.002} for n in range(count))
    daemon = atpd(processes=3).ready()
    deadline = time.monotonic() + 240
    before = count
    while left := Task.objects.count():
        assert time.monotonic() < deadline, f"{left} are left"
        # However slow the machine: a kill for each fiftieth part of the work.
        if left > before - count // 50:
            stays(lambda: daemon.process.poll() is None, 0.05, what="the daemon")
            continue
        before = left
        workers = daemon.workers()
        if workers:
            try:
                os.kill(dice.choice(workers), signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
        stays(lambda: daemon.process.poll() is None, dice.random() * 0.3, what="the daemon")
    assert kills >= 10
    assert set(Instance.objects.values_list("state", flat=True)) == {State.FINISHED}
    assert types.written() == list(range(count))
    print(f"{kills} kills, {sum(Instance.objects.values_list('restarts', flat=True))} restarts")
