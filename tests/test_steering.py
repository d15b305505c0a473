"""Tests of :mod:`atp.verbs.instances` and :mod:`atp.verbs.removal`."""

from datetime import timedelta

import pytest

from atp import queue
from atp.exceptions import (
    IllegalTransition,
    InvalidOption,
    NotPausable,
    UnknownInstance,
)
from atp.models import Instance, LogRecord, Task
from atp.states import LIVE, Event, Reason, State
from atp.store import get_store
from atp.store.values import Move
from atp.verbs import instances, removal
from atp.verbs.registry import Registry

from .app.tasks import add, echo
from .app.tasks_transactional import row

pytestmark = pytest.mark.django_db


def run(host, *events, **details):
    """Claim what there is, and record these events of each."""
    for claimed in host.claim():
        host.move(claimed, *events, **details)


class TestRedrive:
    def test_it_goes_back_with_its_budgets_as_new(self, host):
        one = echo.enqueue()
        run(host, Event.START, Event.FAIL, reason=Reason.ERROR)
        queue.redrive(one, by="ann, shell")
        assert (one.state, one.reason) == (State.ACCEPTED, "")
        assert one.log.last().who == "ann, shell"

    def test_of_one_that_has_not_failed(self, host):
        """G13: the others are redriven."""
        failed, live = echo.enqueue(), echo.enqueue()
        fail = Move(event=Event.FAIL, instance=failed.pk, reason=Reason.CANCELLED)
        get_store().record([fail])
        with pytest.raises(IllegalTransition, match=f"{live.uuid} cannot be redriven") as caught:
            queue.redrive(live, failed)
        assert (caught.value.event, caught.value.state) == (Event.REDRIVE, State.ACCEPTED)
        failed.refresh_from_db()
        assert failed.state == State.ACCEPTED


class TestRelease:
    """RFC 14: re-enqueueing a live task."""

    def test_the_holder_is_asked(self, host):
        one = echo.enqueue()
        run(host, Event.START)
        assert queue.release(one, by="ann") is True
        assert [asked.instance for asked in get_store().asked(host.uuid)] == [one.pk]
        assert one.state == State.RUNNING
        assert one.log.last().who == "ann"

    def test_what_waits_has_nothing_to_do(self):
        one = echo.enqueue()
        before = LogRecord.objects.count()
        assert queue.release(one) is False
        assert LogRecord.objects.count() == before

    def test_what_has_ended_cannot(self, host):
        one = echo.enqueue()
        run(host, Event.START, Event.FINISH)
        with pytest.raises(IllegalTransition, match="FINISHED"):
            queue.release(one)


class TestCancel:
    def test_what_waits_and_what_runs(self, host):
        running = echo.enqueue()
        run(host, Event.START)
        waiting = echo.enqueue()
        assert queue.cancel(waiting, running, by="ann") == [running]
        assert (waiting.state, waiting.reason) == (State.FAILED, Reason.CANCELLED)
        assert running.state == State.RUNNING
        assert queue.task(running).request == "cancel"
        assert {one.log.last().who for one in (waiting, running)} == {"ann"}

    def test_what_has_ended_cannot(self, host):
        """G13: the others are cancelled."""
        ended = echo.enqueue()
        run(host, Event.START, Event.FINISH)
        live = echo.enqueue()
        with pytest.raises(IllegalTransition, match="cannot be cancelled: it is FINISHED") as told:
            queue.cancel(ended, live)
        assert told.value.state == State.FINISHED
        assert queue.get(live.uuid).reason == Reason.CANCELLED

    def test_the_second_who_asks_is_told(self, host):
        one = echo.enqueue()
        run(host, Event.START)
        queue.cancel(one, by="ann")
        for verb in (queue.cancel, queue.release):
            with pytest.raises(IllegalTransition, match="has been asked to be cancelled already"):
                verb(one, by="bob")
        assert "bob" not in {record.who for record in one.log}

    def test_it_can_be_redriven(self):
        one = echo.enqueue()
        queue.cancel(one)
        queue.redrive(one)
        assert (one.state, one.reason) == (State.ACCEPTED, "")

    def test_what_was_read_of_it_is_read_again(self):
        made = echo.enqueue()
        assert (made.task.request, made.type.identifier) == ("", "tests.echo")
        Task.objects.update(priority=7)
        Instance.objects.reload([made])
        assert made.task.priority == 7

    def test_in_chunks(self, monkeypatch):
        monkeypatch.setattr(instances, "CHUNK", 2)
        made = echo.enqueue_many([{}] * 5)
        assert queue.cancel(*made) == []
        assert queue.cancel() == []
        assert {one.reason for one in made} == {Reason.CANCELLED}

    def test_one_that_is_gone(self):
        one = echo.enqueue()
        one.pk = 2**40
        with pytest.raises(UnknownInstance):
            queue.cancel(one)


class TestRemoving:
    def test_delete_cancels_first(self, host):
        """G12: what waits at once, what runs not before its end."""
        running = echo.enqueue()
        run(host, Event.START)
        waiting = echo.enqueue()
        assert queue.delete(waiting, running, by="ann", cancel=True) == 1
        assert list(Instance.objects.all()) == [running]
        assert queue.task(running).request == "cancel"
        assert queue.delete(running, cancel=True) == 0
        end = Move(event=Event.FAIL, instance=running.pk, attempt=1, reason=Reason.CANCELLED)
        assert host.record(end) == []
        assert queue.delete(running, by="ann", cancel=True) == 1
        assert LogRecord.objects.about("type:tests.echo").last().who == "ann"

    def test_delete(self, host):
        made = echo.enqueue_many([{}] * 3)
        run(host, Event.START, Event.FINISH)
        assert queue.delete(*made[:2]) == 2
        assert list(Instance.objects.all()) == made[2:]
        assert queue.delete() == 0

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_delete_of_a_live_one_removes_nothing(self, world, host, state):
        """G12 and G1."""
        ended = world.bring_to(State.FINISHED, host, type=echo.registration())
        live = world.bring_to(state, host, type=echo.registration())
        made = [Instance.objects.get(pk=case.instance) for case in (ended, live)]
        with pytest.raises(IllegalTransition, match=str(made[1].uuid)):
            queue.delete(*made)
        assert Instance.objects.count() == 2

    def test_delete_of_one_that_is_gone(self, host):
        one = echo.enqueue()
        run(host, Event.START, Event.FINISH)
        queue.delete(one)
        one.pk = 2**40
        with pytest.raises(UnknownInstance):
            queue.delete(one)

    def test_purge_removes_in_chunks_until_nothing_is_left(self, host, monkeypatch):
        """G12."""
        monkeypatch.setattr(removal, "CHUNK", 2)
        add.enqueue_many([(n,) for n in range(5)])
        echo.enqueue()
        past = get_store().now() - timedelta(days=2)
        run(host, Event.START, Event.FINISH, time=past)
        assert queue.purge("tests.echo") == 0
        assert queue.purge() == 5
        assert [one.type.identifier for one in Instance.objects.all()] == ["tests.echo"]


VERBS = (queue.cancel, queue.pause, queue.resume, queue.release, queue.redrive, queue.delete)


class TestWhatVerbsTake:
    """G13: an Instance or its uuid; anything else is a named error, and nothing is written."""

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("wrong", ["nonsense", "", 7, None, 1.5, b"x", [], object()])
    def test_no_instance(self, world, verb, wrong):
        echo.enqueue()
        before = world.snapshot()
        with pytest.raises(UnknownInstance):
            verb(wrong)
        assert world.snapshot() == before

    @pytest.mark.parametrize("verb", [queue.cancel, queue.redrive, queue.delete])
    def test_one_of_several(self, world, verb):
        one = echo.enqueue()
        if verb is not queue.cancel:
            queue.cancel(one)
        before = world.snapshot()
        with pytest.raises(UnknownInstance):
            verb(one, "nonsense")
        assert world.snapshot() == before

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("by", [5, None, b"ann", "x" * 201, "a\0b"])
    def test_nobody(self, world, verb, by):
        one = echo.enqueue()
        before = world.snapshot()
        with pytest.raises(InvalidOption, match="by"):
            verb(one, by=by)
        assert world.snapshot() == before

    def test_by_its_uuid(self, host):
        one = echo.enqueue()
        run(host, Event.START)
        queue.pause(one.uuid)
        queue.resume(str(one.uuid))
        assert queue.release(one.uuid) is True
        assert [each.pk for each in queue.cancel(str(one.uuid))] == [one.pk]
        other = echo.enqueue()
        assert queue.cancel(other.uuid) == []
        queue.redrive(str(other.uuid))
        assert queue.get(other.uuid).state == State.ACCEPTED
        queue.cancel(other.uuid)
        assert queue.delete(other.uuid) == 1


class TestRefusalsSayWhy:
    @pytest.mark.parametrize("verb", [queue.cancel, queue.pause, queue.resume, queue.release])
    def test_it_has_been_cancelled(self, verb):
        """Two operators at once: the other is told what the one has done."""
        one = echo.enqueue()
        queue.cancel(one, by="ann")
        with pytest.raises(IllegalTransition, match=r"it is FAILED \(CANCELLED\)\.$"):
            verb(one, by="bob")


class TestPauseOfTransactional:
    def test_it_is_refused_and_said_why(self, world):
        one = row.enqueue(number=1)
        host = world.host(row.identifier)
        run(host, Event.START)
        before = world.snapshot()
        with pytest.raises(NotPausable, match="is transactional, so") as caught:
            queue.pause(one, by="ann")
        assert caught.value.event == Event.PAUSE
        assert isinstance(caught.value, IllegalTransition)
        assert world.snapshot() == before

    def test_who_does_not_know_the_type_may_ask(self, world, monkeypatch):
        one = row.enqueue(number=1)
        run(world.host(row.identifier), Event.START)
        monkeypatch.setattr(instances, "registry", Registry())
        queue.pause(one)
        assert queue.task(one).request == "pause"
