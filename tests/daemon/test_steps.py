"""Steps: what they keep, whatever is killed; what is repeated, the log says (G17)."""

import contextlib
import os
import signal
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction

from atp import queue
from atp.daemon.shared.running_page import Page
from atp.daemon.worker import checkpoints
from atp.models import Daemon, Instance, Step, Task
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store import get_store
from atp.store.values import Move
from tests.app import tasks_steps as types
from tests.app.tasks_daemon import note
from tests.helpers import DEADLINE, wait_for

from .harness import story


def kept(instance):
    return {step.name: step.value for step in instance.steps.all()}


def repeated(instance):
    """The attempts that the log says have repeated a step: pairs with the name."""
    return list(instance.log.filter(kind=Kind.STEP).values_list("attempt", "detail"))


def rows():
    return list(Group.objects.values_list("name", flat=True))


def needs_many_writers():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer, and no locks of rows")


def can_be_locked(instance):
    """Whether nobody has locked its Task; the daemon does for a moment, to record the start."""
    with transaction.atomic():
        return Task.objects.select_for_update(skip_locked=True).filter(pk=instance.pk).exists()


def test_a_later_attempt_is_given_the_result(atpd, record):
    """G17: the function is called once, and nothing was repeated."""
    instance = types.charging.enqueue(path=str(record), raising=2)
    atpd(processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert instance.attempt == 3
    assert [line["attempt"] for line in record.lines("charged")] == [1]
    assert instance.response.value == {"amount": 5, "receipt": "receipt-1"}
    assert repeated(instance) == []
    [step] = instance.steps.all()
    assert (step.name, step.attempt, step.value) == ("charge", 1, instance.response.value)
    assert step.started <= step.finished


def test_a_crash_in_a_step_repeats_it_and_the_log_says_so(atpd, record, flag):
    """G17: it was begun, and nobody knows of its end."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    [line] = record.wait_for("charged")
    assert kept(instance) == {"charge": None}
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("charged", 2)
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert repeated(instance) == [(2, "charge")]
    assert kept(instance) == {"charge": 2}
    assert instance.response.value == 2


def test_a_crash_behind_a_step_repeats_nothing(atpd, record, flag):
    """G17: the checkpoint is committed before the handler goes on."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag), after=True)
    atpd(processes=1)
    [line] = record.wait_for("kept")
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("kept", 2)
    flag.touch()
    assert instance.wait(DEADLINE).response.value == 1
    assert len(record.lines("charged")) == 1
    assert repeated(instance) == []


def test_a_death_in_a_transaction_leaves_nothing_of_it(atpd, record, flag):
    """G17: the first attempt's row was rolled back; the second one's stands, once."""
    instance = types.booking.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    [line] = record.wait_for("written")
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("written", 2)
    flag.touch()
    flag.with_name(f"{flag.name}-after").touch()
    assert instance.wait(DEADLINE).response.value == "0/2"
    assert rows() == ["0/2"]
    assert repeated(instance) == []


def test_a_death_behind_a_transaction_leaves_all_of_it(atpd, record, flag):
    """G17: row and checkpoint are one commit."""
    instance = types.booking.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    flag.touch()
    [line] = record.wait_for("booked")
    assert rows() == ["0/1"]
    os.kill(line["pid"], signal.SIGKILL)
    record.wait_for("booked", 2)
    flag.with_name(f"{flag.name}-after").touch()
    assert instance.wait(DEADLINE).response.value == "0/1"
    assert rows() == ["0/1"]
    assert len(record.lines("written")) == 1


def test_nobody_waits_for_the_handler_in_a_transaction(atpd, record, flag):
    """G9, G17: the Task is locked by the last statements only."""
    needs_many_writers()
    instance = types.booking.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("written")
    wait_for(lambda: can_be_locked(instance))
    flag.touch()
    flag.with_name(f"{flag.name}-after").touch()
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_a_transaction_that_cannot_begin_is_tried_again(transactional_db, monkeypatch):
    """G11: on SQLite somebody else may be writing."""
    tries = []

    @contextlib.contextmanager
    def atomic():
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("database is locked")
        yield

    monkeypatch.setattr(checkpoints, "LOOK_SELDOM", 0.0)
    monkeypatch.setattr(get_store(), "atomic", atomic)
    interruption = SimpleNamespace(put_off=contextlib.nullcontext)
    made = checkpoints.Checkpoints("host:1", interruption, Page(1), 0)
    context = SimpleNamespace(log=lambda *_: None, end_if_asked=lambda: None)
    with made.transaction(context, "book"):
        assert len(tries) == 3


def test_a_block_looks_whether_it_is_done(atpd):
    instance = types.block.enqueue()
    atpd(processes=1)
    assert instance.wait(DEADLINE).response.value == "0/1"
    assert instance.attempt == 2
    assert rows() == ["0/1"]


def test_a_block_that_does_not_look_is_an_error_and_writes_nothing(atpd):
    """G13: in the first attempt, and not when it has booked twice."""
    instance = types.block.enqueue(looks=False)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.ERROR)
    assert "UncheckedStep" in instance.log.get(kind="fail").message
    assert rows() == []
    assert kept(instance) == {}


class TestSleep:
    def test_no_worker_is_held_and_it_goes_on_behind_it(self, atpd, record, tmp_path):
        """G17: what was before is not repeated, and no budget is spent."""
        instance = types.sleeping.enqueue(path=str(record), seconds=2)
        atpd(processes=1)
        record.wait_for("charged")
        other = note.enqueue(path=str(tmp_path / "other"))
        other.wait(DEADLINE)
        instance.wait(DEADLINE)
        assert other.finished < instance.finished
        assert instance.state == State.FINISHED
        assert (instance.attempt, instance.retries, instance.lost) == (2, 0, 0)
        charged = [(line["amount"], line["attempt"]) for line in record.lines("charged")]
        assert charged == [(1, 1), (2, 2)]
        step = instance.steps.get(name="sleep")
        assert instance.started >= step.until
        assert "defer→ACCEPTED 1" in story(instance)

    def test_what_is_run_too_early_sleeps_on(self, atpd, record):
        """G17: as after a crash before the attempt has ended: the time counts from the first."""
        instance = types.sleeping.enqueue(path=str(record), seconds=2)
        atpd(processes=1)
        wait_for(lambda: instance.refresh_from_db() or "defer→ACCEPTED 1" in story(instance))
        until = instance.steps.get(name="sleep").until
        queue.change(instance, due=get_store().now())
        instance.wait(DEADLINE)
        assert (instance.state, instance.attempt) == (State.FINISHED, 3)
        assert instance.started >= until
        assert instance.steps.get(name="sleep").until == until

    def test_a_redrive_does_not_sleep_again(self, atpd, record):
        """G17: it goes on from where it failed."""
        instance = types.sleeping.enqueue(path=str(record), seconds=0.3, fails=True)
        atpd(processes=1)
        instance.wait(DEADLINE)
        assert instance.reason == Reason.FATAL
        queue.redrive(instance)
        instance.refresh_from_db()
        instance.wait(DEADLINE)
        assert instance.attempt == 3
        charged = [(line["amount"], line["attempt"]) for line in record.lines("charged")]
        assert charged == [(1, 1), (2, 2)]


def test_a_key_tells_the_rounds_of_a_loop_apart(atpd, record):
    instance = types.looping.enqueue(path=str(record), names=["a", "b"])
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert set(kept(instance)) == {"charge[a]", "charge[b]"}
    assert len(record.lines("charged")) == 2


def test_a_name_used_twice_is_an_error(atpd, record):
    """G13: before the second function is called."""
    instance = types.doubled.enqueue(path=str(record))
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert "DoubledStep" in instance.log.get(kind="fail").message
    assert [line["amount"] for line in record.lines("charged")] == [1]


@pytest.mark.parametrize("size", [0, 2_000_000, -1], ids=["unknown kind", "too large", "raises"])
def test_a_result_that_cannot_be_kept_is_fatal(atpd, record, size):
    """G13: as a bad Response is; the retries that are left would charge again."""
    instance = types.bad.enqueue(path=str(record), size=size)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.FATAL)
    assert "step 'charge'" in instance.log.get(kind="fail").message
    assert len(record.lines("charged")) == 1


@pytest.mark.parametrize("name", ["inside", "inside_transactional"])
def test_a_step_inside_a_transaction_is_refused(atpd, record, name):
    """G13: its checkpoint could be rolled back; nothing is called."""
    instance = getattr(types, name).enqueue(path=str(record))
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert "StepInTransaction" in instance.log.get(kind="fail").message
    assert record.lines("charged") == []


def test_a_lost_attempt_keeps_nothing(atpd, record, flag):
    """G4, G17: its result is refused, and that is in the log; the next one does it again."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("charged")
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    lost = Move(event=Event.EXPIRE, instance=instance.pk, attempt=1, who="the test")
    assert get_store().record([lost], daemon=Daemon.objects.get().uuid) == []
    flag.touch()
    instance.wait(DEADLINE)
    assert instance.state == State.FINISHED
    assert instance.response.value == instance.attempt == 2
    assert [line["attempt"] for line in record.lines("kept")] == [2]
    assert repeated(instance) == [(2, "charge")]
    assert instance.log.filter(kind=Kind.LATE, attempt=1).exists()


def test_a_lock_of_others_is_waited_for_in_words(atpd, record, flag):
    """G9, G11: the result is kept when the lock is gone; other tasks go on meanwhile."""
    needs_many_writers()
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=2)
    record.wait_for("charged")
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=instance.pk)
        flag.touch()
        daemon.wait_for_fact("results_locked")  # what it has said waits for the same lock
        assert record.lines("kept") == []
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 1)
    assert len(record.lines("charged")) == 1
    messages = instance.log.filter(kind=Kind.MESSAGE).values_list("level", flat=True)
    assert list(messages) == [30]


def test_a_lost_connection_costs_no_result(atpd, record, flag):
    """G11, G17: the function has returned, so its result is written on another connection."""
    needs_many_writers()
    instance = types.waiting.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("charged")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " AND datname = current_database()"
        )
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 1)
    assert len(record.lines("charged")) == 1


def test_a_cancel_leaves_what_was_committed(atpd, record, flag):
    """G17: the checkpoint is there after a redrive."""
    instance = types.waiting.enqueue(path=str(record), until=str(flag), after=True)
    atpd(processes=1)
    record.wait_for("kept")
    queue.cancel(instance)
    assert instance.wait(DEADLINE).reason == Reason.CANCELLED
    flag.touch()
    queue.redrive(instance)
    instance.refresh_from_db()
    assert instance.wait(DEADLINE).response.value == 1
    assert len(record.lines("charged")) == 1


def test_a_stopped_worker_keeps_no_lock(atpd, flag):
    """G9: it is not stopped while it writes a checkpoint, so whoever resumes it can."""
    instance = types.stopped.enqueue(until=str(flag))
    # However long a loaded machine takes for the pauses, the handler writes all the time.
    atpd(processes=1, settings={"MAX_STEPS": 1_000_000})
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    for _ in range(5):
        queue.pause(instance)
        wait_for(lambda: instance.refresh_from_db() or instance.state == State.PAUSED)
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


def test_they_go_with_their_instance(atpd, record):
    """G12."""
    instance = types.charging.enqueue(path=str(record), raising=0)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert Step.objects.count() == 1
    queue.delete(instance)
    assert (Step.objects.count(), Instance.objects.count()) == (0, 0)
