"""Transactional Types: what a handler writes is committed with its end, or not at all (G7)."""

import random
import time

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from atp import messages as attempt_messages
from atp.models import Daemon, Instance, Task
from atp.models import Kind as LogKind
from atp.states import Event, Reason, State
from tests import patience
from tests.app import tasks_transactional as types
from tests.helpers import DEADLINE, stays, wait_for

from ..nonsense import is_made_by
from .harness import Record, story
from .proxy import Proxy
from .scenario import ONCE, ask, lose, on_postgresql, wait_until

# Some of them answer with more than goes into the database.
pytestmark = pytest.mark.usefixtures("media")


def messages(instance):
    return [row.message for row in instance.log.filter(kind=LogKind.MESSAGE)]


def test_writes_are_committed_with_the_end(begin, flag):
    """G7: RUNNING and progress are seen before; renewals go on, and nobody waits for a row."""
    instance, *_ = begin(types.waiting, inputs={"number": 5})
    assert types.written() == []
    assert messages(instance) == []
    if connection.vendor != "sqlite":  # else its one writer is the handler
        wait_for(lambda: instance.refresh_from_db() or instance.progress == 0.5)
        seen = Daemon.objects.get().seen
        wait_for(lambda: Daemon.objects.get().seen > seen)
        # The daemon locks them for moments.
        wait_for(lambda: can_be_locked(Task, instance))
        wait_for(lambda: can_be_locked(Instance, instance))
    flag.touch()
    instance.wait(DEADLINE)
    assert types.written() == [5]
    assert instance.state == State.FINISHED
    assert story(instance) == ONCE
    assert messages(instance) == ["waiting"]
    assert len(instance.response.body) == 100_000
    assert instance.log.get(kind="finish").who.endswith(" worker 0")


def can_be_locked(model, instance):
    with transaction.atomic():
        rows = model.objects.select_for_update(skip_locked=True)
        return rows.filter(pk=instance.pk).exists()


def test_transaction_is_kept_or_rolled_back_with_the_outcome(atpd, record, media):
    """G5, G6, G7: whatever the handler does with it."""
    raising, swallowing = types.raising.enqueue(number=1), types.swallowing.enqueue(number=2)
    leaving_open, dying = types.leaving_open.enqueue(number=3), types.dying.enqueue(number=4)
    # Its hook fails after the commit; a fork has the same connection, and would end it.
    hooks = types.hooks.enqueue(path=str(record), number=5)
    ways = {10: "return", 20: "exit", 30: "raise"}
    forks = [types.forking.enqueue(number=number, how=how) for number, how in ways.items()]
    talking = [types.talking.enqueue(lines=300, fails=fails) for fails in (False, True)]
    daemon = atpd(processes=2, settings={"MAX_LOG_RECORDS": 50})
    ends = {}
    for instance in (raising, swallowing, leaving_open, dying, hooks, *forks, *talking):
        instance.wait(DEADLINE)
        ends[instance] = instance.reason or instance.state
    assert ends[raising] == ends[talking[1]] == Reason.FATAL
    assert messages(raising) == ["about to refuse"]
    [file] = raising.response.files
    assert file["name"] == "refused.txt"
    assert ends[swallowing] == ends[leaving_open] == Reason.ERROR
    assert "transaction" in swallowing.log.get(kind="fail").message
    assert "left an atomic block open" in leaving_open.log.get(kind="fail").message
    assert (ends[dying], dying.restarts) == (Reason.STALE, 2)
    # FINISHED is part of that commit, so it is seen before the hook has run.
    assert story(hooks) == ONCE
    assert len(record.wait_for("committed")) == 1
    for each in forks:
        assert (each.state, each.attempt, each.response.value) == (State.FINISHED, 1, "original")
    assert types.written() == [5, 10, 11, 20, 21, 30, 31]
    for each in talking:
        # The last is said before the end, so it is written with the end.
        wait_for(lambda each=each: "line 299" in messages(each))
        assert any("left out here" in text for text in messages(each))
        assert len(messages(each)) <= 51
    assert daemon.stop() == 0


def test_slow_or_deadly_callbacks_after_the_commit_change_nothing(atpd, record):
    """G7: such a death is not charged."""
    inputs = ({"path": str(record), "number": n} for n in range(3))
    slow = types.slow_hooks.enqueue_many(inputs)
    dying = types.dying_late.enqueue_many({"number": 3 + n} for n in range(3))
    daemon = atpd(processes=3)
    record.wait_for("after", 3)
    daemon.wait_for_fact("worker_died", 3)
    for instance in (*slow, *dying):
        instance.wait(DEADLINE)
        assert story(instance) == ONCE
        assert (instance.restarts, instance.lost) == (0, 0)
        assert messages(instance) == []
    assert types.written() == [0, 1, 2, 3, 4, 5]
    again = types.row.enqueue(number=9)
    assert again.wait(DEADLINE).state == State.FINISHED
    for fact in ("worker_killed", "refused", "expired", "rejoined"):
        assert not daemon.facts(fact)


def test_timeout_begins_with_the_transaction(atpd):
    """G5: waiting for SQLite's one writer does not count."""
    second = patience.factor()
    instances = types.row.enqueue_many({"number": n, "seconds": second} for n in range(4))
    daemon = atpd(processes=4, settings={"TIMEOUT": 2.5 * second})
    for instance in instances:
        instance.wait(DEADLINE)
    assert {(i.state, i.restarts) for i in instances} == {(State.FINISHED, 0)}
    assert types.written() == [0, 1, 2, 3]
    assert not daemon.facts("worker_killed")


@on_postgresql
def test_lost_answer_to_a_commit_loses_no_response(atpd, record, flag):
    """G7."""
    with Proxy() as proxy:
        instance = types.waiting.enqueue(path=str(record), until=str(flag), number=3)
        atpd(processes=1, environment={"DATABASE_URL": proxy.url})
        record.wait_for("start")
        proxy.swallow_commit()
        flag.touch()
        assert proxy.swallowed.wait(DEADLINE)
        instance.wait(DEADLINE)
        assert story(instance) == ONCE
        assert types.written() == [3]
        assert len(instance.response.body) == 100_000
        assert messages(instance) == ["waiting"]


@on_postgresql
def test_lost_attempt_is_rolled_back_and_its_end_recorded(atpd, tmp_path, flag):
    """G4, G7."""
    cases = {
        types.waiting: (Event.FINISH, "all that it wrote was rolled back"),
        types.raising_late: (Event.FAIL, "; all that it wrote was rolled back\nrefused"),
    }
    records = {type: Record(tmp_path / type.identifier) for type in cases}
    inputs = {types.waiting: {"number": 1}, types.raising_late: {}}
    instances = {
        type: type.enqueue(path=str(record), until=str(flag), **inputs[type])
        for type, record in records.items()
    }
    daemon = atpd(processes=2)
    for type, instance in instances.items():
        records[type].wait_for("start")
        wait_until(State.RUNNING, instance)
    # What it says is in the database, and so is its start.
    first = instances[types.waiting]
    wait_for(lambda: first.refresh_from_db() or first.progress == 0.5)
    for instance in instances.values():
        lose(instance)
        assert instance.refresh_from_db() or instance.state == State.ACCEPTED
    flag.touch()
    for type, (event, words) in cases.items():
        instance = instances[type].wait(DEADLINE)
        assert (instance.state, instance.attempt) == (State.FINISHED, 2)
        kept = instance.log.get(kind=LogKind.LATE)
        assert (kept.attempt, kept.detail.split()[0]) == (1, event)
        assert is_made_by(kept.message, attempt_messages.late_result, words)
    assert set(Group.objects.values_list("name", flat=True)) == {"0/2", "1/2"}
    daemon.wait_for_fact("refused", 2)


@on_postgresql
def test_lost_connection_rolls_back_and_is_not_charged(begin, flag):
    """G7, G11."""
    instance, _, line = begin(types.waiting)
    ask("SELECT pg_terminate_backend(%s, 10000)", line["backend"])
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2), list(instance.log.values())
    assert (instance.retries, instance.restarts, instance.lost) == (0, 0, 0)
    assert "defer→ACCEPTED 1" in story(instance)
    assert list(Group.objects.values_list("name", flat=True)) == ["0/2"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_rows_are_written_exactly_once_while_workers_are_killed(atpd, count):
    """G7."""
    kills, dice = 0, random.Random(7)
    types.row.enqueue_many({"number": n, "pause": 0.06} for n in range(count))
    daemon = atpd(processes=3).ready()
    deadline = time.monotonic() + 240
    before = count
    while left := Task.objects.count():
        assert time.monotonic() < deadline, f"{left} are left"
        # However slow the machine: a kill for each fifteenth part of the work.
        if left > before - count // 15:
            stays(lambda: daemon.process.poll() is None, 0.05, what="the daemon")
            continue
        before = left
        daemon.kill_a_worker(dice)
        kills += 1
        stays(lambda: daemon.process.poll() is None, dice.random() * 0.1, what="the daemon")
    assert kills >= 10
    assert set(Instance.objects.values_list("state", flat=True)) == {State.FINISHED}
    assert types.written() == list(range(count))
