"""What operators do with single Instances, and removing them."""

from datetime import timedelta

import pytest
from django.db.models import ProtectedError

from atp import queue
from atp.exceptions import IllegalTransition, InvalidOption, NotPausable, UnknownInstance
from atp.models import Instance, LogRecord, Task, Type
from atp.operations import instances
from atp.operations.registry import Registry
from atp.states import LIVE, Event, Reason, State
from atp.store import get_store
from atp.store.values import Move

from .app.tasks import add, echo
from .app.tasks_transactional import row

pytestmark = pytest.mark.django_db


def run(host, *events, **details):
    """Claim what there is, and record these events of each."""
    for claimed in host.claim():
        host.move(claimed, *events, **details)


def test_what_one_cannot_be_done_with_does_not_keep_others_from_it(host):
    """G13: the others are cancelled, or redriven."""
    ended = echo.enqueue()
    run(host, Event.START, Event.FINISH)
    other = echo.enqueue()
    with pytest.raises(IllegalTransition, match="cannot be cancelled: it is FINISHED") as told:
        queue.cancel(ended, other)
    assert told.value.state == State.FINISHED
    assert queue.get(other.uuid).reason == Reason.CANCELLED
    live = echo.enqueue()
    with pytest.raises(IllegalTransition, match=f"{live.uuid} cannot be redriven") as told:
        queue.redrive(live, other)
    assert (told.value.event, told.value.state) == (Event.REDRIVE, State.ACCEPTED)
    assert queue.get(other.uuid).state == State.ACCEPTED


class TestCancel:
    def test_the_second_who_asks_is_told(self, host):
        """Two operators at once: the other is told what the one has done."""
        waiting = echo.enqueue()
        queue.cancel(waiting, by="ann")
        for verb in (queue.cancel, queue.pause, queue.resume, queue.release):
            with pytest.raises(IllegalTransition, match=r"it is FAILED \(CANCELLED\)\.$"):
                verb(waiting, by="bob")
        one = echo.enqueue()
        run(host, Event.START)
        queue.cancel(one, by="ann")
        for verb in (queue.cancel, queue.release):
            with pytest.raises(IllegalTransition, match="has been asked to be cancelled already"):
                verb(one, by="bob")
        assert "bob" not in {record.who for record in one.log}

    def test_in_chunks(self, monkeypatch):
        monkeypatch.setattr(instances, "CHUNK", 2)
        made = echo.enqueue_many([{}] * 5)
        assert queue.cancel(*made) == []
        assert queue.cancel() == []
        assert {one.reason for one in made} == {Reason.CANCELLED}


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

    def test_delete_of_a_live_one_removes_nothing(self, world, host):
        """G12 and G1."""
        ended, *live = (
            Instance.objects.get(pk=world.bring_to(state, host, type=echo.registration()).instance)
            for state in (State.FINISHED, *sorted(LIVE, reverse=True))
        )
        for one in live:
            with pytest.raises(IllegalTransition, match=str(one.uuid)):
                queue.delete(ended, one)
        assert Instance.objects.count() == 1 + len(LIVE)
        assert queue.delete(ended) == 1
        assert queue.delete() == 0

    def test_purge_removes_in_chunks_until_nothing_is_left(self, host, monkeypatch):
        """G12."""
        monkeypatch.setattr(instances, "CHUNK", 2)
        add.enqueue_many([(n,) for n in range(5)])
        echo.enqueue()
        past = get_store().now() - timedelta(days=2)
        run(host, Event.START, Event.FINISH, time=past)
        assert queue.purge("tests.echo") == 0
        assert queue.purge() == 5
        assert [one.type.identifier for one in Instance.objects.all()] == ["tests.echo"]


class TestRemovingAsADjangoDeveloperDoes:
    """By ``delete()`` of a model or a QuerySet."""

    def ended(self):
        instance = echo.enqueue()
        queue.cancel(instance, by="the test")
        return Instance.objects.get(pk=instance.pk)

    def test_a_live_one_is_not_removed(self):
        """G1: a daemon may be at work on it; the way to do it is named."""
        live, done = echo.enqueue(), self.ended()
        with pytest.raises(IllegalTransition, match=r"queue\.delete\(instance, cancel=True\)"):
            live.delete()
        with pytest.raises(IllegalTransition, match=str(live.uuid)):
            Instance.objects.filter(pk__in=[done.pk, live.pk]).delete()
        assert Task.objects.filter(pk=live.pk).exists()
        # What an object says of itself may be old.
        queue.redrive(done, by="the test")
        stale = Instance(pk=done.pk, type=done.type, state="FAILED", uuid=done.uuid)
        with pytest.raises(IllegalTransition):
            stale.delete(using="default")
        with pytest.raises(ProtectedError):
            Type.objects.get(identifier="tests.echo").delete()
        assert Instance.objects.count() == 2

    def test_what_has_ended_is_removed(self):
        first, *rest = [self.ended() for _ in range(3)]
        first.delete()
        assert Instance.objects.filter(pk__in=[each.pk for each in rest]).delete()[0] >= 2
        assert not Instance.objects.exists()


VERBS = (queue.cancel, queue.pause, queue.resume, queue.release, queue.redrive, queue.delete)


class TestWhatVerbsTake:
    """G13: an Instance or its uuid; anything else is a named error, and nothing is written."""

    def test_no_instance_and_nobody(self, world):
        one, ended, gone = (echo.enqueue() for _ in range(3))
        queue.cancel(ended, gone)
        queue.delete(gone)
        gone.pk = 2**40
        before = world.snapshot()
        for verb in VERBS:
            for wrong in ("nonsense", "", 7, None, 1.5, b"x", [], object()):
                with pytest.raises(UnknownInstance):
                    verb(wrong)
            for by in (5, None, b"ann", "x" * 201, "a\0b"):
                with pytest.raises(InvalidOption, match="by"):
                    verb(one, by=by)
        for verb, *given in (
            *((queue.cancel, one, "nonsense"), (queue.redrive, ended, "nonsense")),
            *((queue.delete, ended, "nonsense"), (queue.cancel, gone), (queue.delete, gone)),
        ):
            with pytest.raises(UnknownInstance):
                verb(*given)
        assert world.snapshot() == before

    def test_by_its_uuid(self, host):
        one = echo.enqueue()
        run(host, Event.START)
        queue.pause(one.uuid)
        queue.resume(str(one.uuid))
        assert queue.release(one.uuid) is True
        assert queue.release(echo.enqueue()) is False  # it has nothing to do
        assert [each.pk for each in queue.cancel(str(one.uuid))] == [one.pk]
        other = echo.enqueue()
        assert queue.cancel(other.uuid) == []
        queue.redrive(str(other.uuid))
        assert queue.get(other.uuid).state == State.ACCEPTED
        queue.cancel(other.uuid)
        assert queue.delete(other.uuid) == 1


def test_a_pause_of_a_transactional_one_is_refused_by_who_knows_its_type(world, monkeypatch):
    one = row.enqueue(number=1)
    run(world.host(row.identifier), Event.START)
    before = world.snapshot()
    with pytest.raises(NotPausable, match="is transactional, so") as caught:
        queue.pause(one, by="ann")
    assert caught.value.event == Event.PAUSE
    assert isinstance(caught.value, IllegalTransition)
    assert world.snapshot() == before
    monkeypatch.setattr(instances, "registry", Registry())
    queue.pause(one)
    assert queue.task(one).request == "pause"
