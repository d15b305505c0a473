"""Steps: what they keep, whatever is killed; what is repeated, the log says (G17)."""

import os
import signal

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from atp import queue
from atp.models import Kind, Step, Task
from atp.states import Reason, State
from atp.store import get_store
from tests.app import tasks_steps as types
from tests.app.tasks_daemon import note
from tests.helpers import DEADLINE, wait_for

from .harness import Record, story
from .scenario import cut_connections, lose, on_postgresql, wait_until


def kept(instance):
    return {step.name: step.value for step in instance.steps.all()}


def repeated(instance):
    """The attempts that the log says have repeated a step: pairs with the name."""
    return list(instance.log.filter(kind=Kind.STEP).values_list("attempt", "detail"))


def rows():
    return list(Group.objects.values_list("name", flat=True))


@pytest.fixture
def records(tmp_path):
    """A record for each name."""
    made = {}
    return lambda name: made.setdefault(name, Record(tmp_path / f"{name}.jsonl"))


def test_kept_step_is_not_called_again_and_a_bad_result_is_fatal(atpd, records):
    """G13, G17."""
    charging = types.charging.enqueue(path=str(records("charging")), raising=2)
    looping = types.looping.enqueue(path=str(records("looping")), names=["a", "b"])
    doubled = types.doubled.enqueue(path=str(records("doubled")))
    block, unchecked = types.block.enqueue(), types.block.enqueue(looks=False)
    # Of an unknown kind, too large, and one that raises: as a bad Response is, they are fatal.
    bad = {size: types.bad.enqueue(path=str(records(size)), size=size) for size in (0, 2 * MB, -1)}
    inside = [
        kind.enqueue(path=str(records("inside")))
        for kind in (types.inside, types.inside_transactional)
    ]
    atpd(processes=2)
    assert charging.wait(DEADLINE).attempt == 3
    assert [line["attempt"] for line in records("charging").lines("charged")] == [1]
    assert charging.response.value == {"amount": 5, "receipt": "receipt-1"}
    assert repeated(charging) == []
    [step] = charging.steps.all()
    assert (step.name, step.attempt, step.value) == ("charge", 1, charging.response.value)
    assert step.started <= step.finished

    assert looping.wait(DEADLINE).state == State.FINISHED
    assert set(kept(looping)) == {"charge[a]", "charge[b]"}
    assert "DoubledStep" in failure(doubled)
    assert [line["amount"] for line in records("doubled").lines("charged")] == [1]

    assert block.wait(DEADLINE).response.value == "0/1"
    assert block.attempt == 2
    # Not when it has booked twice.
    assert "UncheckedStep" in failure(unchecked)
    assert (rows(), kept(unchecked)) == (["0/1"], {})

    for size, instance in bad.items():
        assert "step 'charge'" in failure(instance)
        assert instance.reason == Reason.FATAL
        assert len(records(size).lines("charged")) == 1
    for instance in inside:
        assert "StepInTransaction" in failure(instance)
    assert records("inside").lines("charged") == []


MB = 1_000_000


def failure(instance):
    """Wait for its end, and return what its log says of that."""
    assert instance.wait(DEADLINE).state == State.FAILED
    return instance.log.get(kind="fail").message


def test_killed_attempt_repeats_only_interrupted_steps_and_logs_it(atpd, records, flag):
    """G17: row and checkpoint of a transaction are one commit."""
    opened = flag.with_name("opened")
    opened.touch()

    def begun(type, event, until=flag, **inputs):
        record = records(type.identifier + event)
        return type.enqueue(path=str(record), until=str(until), **inputs), record, event

    cases = [
        begun(types.waiting, "charged"),
        begun(types.waiting, "kept", after=True),
        begun(types.booking, "booked", until=opened),
    ]
    (inside, _, _), (behind, _, _), (booking, _, _) = cases
    atpd(processes=3)
    pids = [record.wait_for(event)[0]["pid"] for _, record, event in cases]
    assert kept(inside) == {"charge": None}
    assert rows() == ["0/1"]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for _, record, event in cases:
        record.wait_for(event, 2)
    for until in (flag, opened):
        until.touch()
        until.with_name(f"{until.name}-after").touch()
    assert [each.wait(DEADLINE).response.value for each, _, _ in cases] == [2, 1, "0/1"]
    assert repeated(inside) == [(2, "charge")]
    assert kept(inside) == {"charge": 2}
    assert repeated(behind) == repeated(booking) == []
    assert rows() == ["0/1"]
    assert len(cases[1][1].lines("charged")) == len(cases[2][1].lines("written")) == 1


def test_kill_inside_a_step_transaction_leaves_nothing_of_it(atpd, record, flag):
    """G9, G17: and nobody waits for the handler meanwhile."""
    instance = types.booking.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    [line] = record.wait_for("written")
    if connection.vendor != "sqlite":  # the Task is locked by the last statements only
        # The daemon locks it for a moment, to record the start.
        with transaction.atomic():
            free = Task.objects.select_for_update(skip_locked=True).filter(pk=instance.pk)
            wait_for(free.exists)
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("written", 2)
    flag.touch()
    flag.with_name(f"{flag.name}-after").touch()
    assert instance.wait(DEADLINE).response.value == "0/2"
    assert rows() == ["0/2"]
    assert repeated(instance) == []


def test_sleep_holds_no_worker_and_is_not_repeated(atpd, record, records):
    """G17: an attempt that comes too early sleeps on; a redrive goes on behind the sleep."""
    instance = types.sleeping.enqueue(path=str(records("usual")), seconds=3)
    early = types.sleeping.enqueue(path=str(records("early")), seconds=3)
    failing = types.sleeping.enqueue(path=str(records("failing")), seconds=0.3, fails=True)
    atpd(processes=1)
    records("failing").wait_for("charged")
    other = note.enqueue(path=str(record))
    wait_for(lambda: early.refresh_from_db() or "defer→ACCEPTED 1" in story(early))
    until = early.steps.get(name="sleep").until
    queue.change(early, due=get_store().now())
    assert failing.wait(DEADLINE).reason == Reason.FATAL
    queue.redrive(failing)
    failing.refresh_from_db()
    for each in (other, instance, early, failing):
        each.wait(DEADLINE)
    assert other.finished < instance.finished
    assert (instance.attempt, instance.retries, instance.lost) == (2, 0, 0)
    assert instance.started >= instance.steps.get(name="sleep").until
    assert "defer→ACCEPTED 1" in story(instance)
    assert (early.state, early.attempt) == (State.FINISHED, 3)
    assert early.started >= until
    assert early.steps.get(name="sleep").until == until
    assert failing.attempt == 3
    for name, last in (("usual", 2), ("early", 3), ("failing", 2)):
        charged = [(line["amount"], line["attempt"]) for line in records(name).lines("charged")]
        assert charged == [(1, 1), (2, last)]


def test_checkpoint_of_a_lost_attempt_is_refused_and_recorded(begin, record, flag):
    """G4, G17: the next attempt calls the function again."""
    instance, *_ = begin(types.waiting, event="charged", processes=2)
    lose(instance)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert instance.response.value == instance.attempt == 2
    assert [line["attempt"] for line in record.lines("kept")] == [2]
    assert repeated(instance) == [(2, "charge")]
    assert instance.log.filter(kind=Kind.LATE, attempt=1).exists()


@on_postgresql
def test_checkpoint_is_written_after_a_lock_and_after_a_lost_connection(begin, records, flag):
    """G9, G11, G17: the log tells of the lock."""
    locked, daemon, _ = begin(types.waiting, event="charged", processes=2)
    until = flag.with_name("until")
    cut_off = types.waiting.enqueue(path=str(records("cut off")), until=str(until))
    records("cut off").wait_for("charged")
    wait_until(State.RUNNING, cut_off)
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=locked.pk)
        flag.touch()
        daemon.wait_for_fact("results_locked")  # what it has said waits for the same lock
        assert kept(locked) == {"charge": None}
    locked.wait(DEADLINE)
    cut_connections()
    until.touch()
    cut_off.wait(DEADLINE)
    for instance, levels in ((locked, [30]), (cut_off, [])):
        assert (instance.state, instance.attempt) == (State.FINISHED, 1)
        assert repeated(instance) == []
        messages = instance.log.filter(kind=Kind.MESSAGE).values_list("level", flat=True)
        assert list(messages) == levels


def test_worker_is_not_paused_while_it_writes_a_checkpoint(atpd, flag):
    """G9: so it holds no lock."""
    instance = types.stopped.enqueue(until=str(flag))
    # However long a loaded machine takes for the pauses, the handler writes all the time.
    atpd(processes=1, settings={"MAX_STEPS": 1_000_000})
    wait_until(State.RUNNING, instance)
    for _ in range(3):
        queue.pause(instance)
        wait_until(State.PAUSED, instance)
        note_count = Step.objects.filter(instance=instance).count()
        with transaction.atomic():
            # SQLite has one lock for all: then this is enough.
            Task.objects.select_for_update(nowait=True).get(pk=instance.pk)
            Task.objects.filter(pk=instance.pk).update(priority=0)
        assert Step.objects.filter(instance=instance).count() == note_count
        queue.resume(instance)
        wait_for(lambda: instance.refresh_from_db() or instance.state != State.PAUSED)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
