"""Tests of operations on single Instances, of ``queue.change``, and of deletion."""

from datetime import UTC, datetime, timedelta

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
    """Claim all due Tasks, and record the given events for each Task."""
    for claimed in host.claim():
        host.move(claimed, *events, **details)


@pytest.mark.each_database
def test_operation_refused_for_one_instance_is_done_for_the_others(host):
    """G13: the other Instances of the call are cancelled or redriven."""
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


def test_operator_who_acts_after_a_cancel_is_refused_and_told_of_it(host):
    """If two operators act at once, the error tells the second what the first has done."""
    waiting = echo.enqueue()
    queue.cancel(waiting, by="ann")
    for verb in (queue.cancel, queue.pause, queue.resume, queue.release):
        with pytest.raises(IllegalTransition, match=r"it is FAILED \(CANCELLED\)\.$"):
            verb(waiting, by="bob")
    one = echo.enqueue()
    run(host, Event.START)
    queue.cancel(one, by="ann")
    for verb in (queue.cancel, queue.release):
        with pytest.raises(IllegalTransition, match="is being cancelled already"):
            verb(one, by="bob")
    assert "bob" not in {record.who for record in one.log}


def test_delete_with_cancel_removes_a_running_instance_only_after_its_end(host):
    """G12: a waiting Instance is deleted at once, and a running Instance only after its end."""
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


def test_delete_of_a_live_instance_removes_nothing(world, host):
    """G1, G12: the ended Instances of the same call are not deleted either."""
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


def test_cancel_and_purge_work_in_chunks_until_nothing_is_left(host, monkeypatch):
    """G12: an Instance within the retention of its Type is kept."""
    monkeypatch.setattr(instances, "CHUNK", 2)
    made = add.enqueue_many([(n,) for n in range(5)])
    assert queue.cancel(*made) == queue.cancel() == []
    queue.redrive(*made)
    echo.enqueue()
    past = get_store().now() - timedelta(days=2)
    run(host, Event.START, Event.FINISH, time=past)
    assert queue.purge("tests.echo") == 0
    assert queue.purge() == 5
    assert [one.type.identifier for one in Instance.objects.all()] == ["tests.echo"]


def test_django_delete_refuses_a_live_instance():
    """G1: a daemon might be running the Instance. The error names the right call instead."""
    live, done = echo.enqueue(), echo.enqueue()
    queue.cancel(done, by="the test")
    with pytest.raises(IllegalTransition, match=r"queue\.delete\(instance, cancel=True\)"):
        live.delete()
    with pytest.raises(IllegalTransition, match=str(live.uuid)):
        Instance.objects.filter(pk__in=[done.pk, live.pk]).delete()
    assert Task.objects.filter(pk=live.pk).exists()
    # The state of a Python object can be outdated.
    queue.redrive(done, by="the test")
    stale = Instance(pk=done.pk, type=done.type, state="FAILED", uuid=done.uuid)
    with pytest.raises(IllegalTransition):
        stale.delete(using="default")
    with pytest.raises(ProtectedError):
        Type.objects.get(identifier="tests.echo").delete()
    assert Instance.objects.count() == 2
    queue.cancel(live, done)
    Instance.objects.get(pk=done.pk).delete()
    assert Instance.objects.filter(pk=live.pk).delete()[0] >= 1
    assert not Instance.objects.exists()


VERBS = (queue.cancel, queue.pause, queue.resume, queue.release, queue.redrive, queue.delete)


def test_operations_reject_an_unknown_instance_or_an_invalid_actor(world):
    """G13: anything but an Instance or its uuid is refused before any write."""
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


def test_operations_accept_an_instance_by_its_uuid(host):
    one = echo.enqueue()
    run(host, Event.START)
    queue.pause(one.uuid)
    queue.resume(str(one.uuid))
    assert queue.release(one.uuid) is True
    assert queue.release(echo.enqueue()) is False  # no daemon holds this Instance
    assert [each.pk for each in queue.cancel(str(one.uuid))] == [one.pk]
    other = echo.enqueue()
    assert queue.cancel(other.uuid) == []
    queue.redrive(str(other.uuid))
    assert queue.get(other.uuid).state == State.ACCEPTED
    queue.cancel(other.uuid)
    assert queue.delete(other.uuid) == 1


def test_pause_of_a_transactional_instance_is_refused_if_its_type_is_declared(world, monkeypatch):
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


HOUR = timedelta(hours=1)


@pytest.mark.each_database
def test_change_of_an_instance_sets_its_priority_collection_and_due_time(world):
    instance = echo.enqueue()
    due = datetime(2100, 1, 1, tzinfo=UTC)
    queue.change(instance, priority=5, collection="books", due=due, by="ann")
    assert (instance.priority, instance.collection) == (5, "books")
    assert queue.task(instance).due_at == due
    assert instance.log.last().who == "ann"
    queue.change(str(instance.uuid), due=timedelta())
    assert queue.task(instance).due_at <= world.store.now()


def test_change_rejects_invalid_values_and_writes_nothing(world):
    instance = echo.enqueue()
    before = world.snapshot()
    for what, told in (
        ({}, "Nothing to change"),
        ({"priority": 101}, "from -100 to 100"),
        ({"priority": True}, "whole number"),
        ({"collection": "a\nb"}, "printable"),
        ({"collection": "x" * 201}, "200 are allowed"),
        ({"collection": 7}, "must be text"),
        ({"due": "tomorrow"}, "datetime"),
        ({"due": datetime(2030, 1, 1)}, "no time zone"),
        ({"due": timedelta.max}, "calendar"),
        ({"due": timedelta(-1)}, "must be 0 or more"),
        ({"due": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, "due=9999-12-31T23:59:59"),
        ({"priority": 3, "by": 5}, "by=5"),
        ({"due": HOUR, "postpone": HOUR}, "either"),
        ({"postpone": -HOUR}, "from 0"),
        ({"postpone": 3600}, "timedelta"),
        ({"postpone": timedelta(days=4000)}, "from 0"),
    ):
        with pytest.raises(InvalidOption, match=told):
            queue.change(instance, **what)
    kept = Instance(pk=2**40, uuid=instance.uuid, type=instance.type, state=State.ACCEPTED)
    for given in ((kept,), (instance, "nonsense"), (instance, 7), (instance, None)):
        with pytest.raises(UnknownInstance):
            queue.change(*given, priority=1)
    assert world.snapshot() == before


def test_change_refuses_an_instance_that_is_not_waiting_and_names_its_state(world, host):
    """G6, G13: the other Instances of the same call are changed."""
    running, waiting = echo.using(priority=9).enqueue(), echo.enqueue()
    host.claim(1)
    with pytest.raises(IllegalTransition, match="it is SCHEDULED, not ACCEPTED") as caught:
        queue.change(running, waiting, collection="a")
    assert caught.value.state == State.SCHEDULED
    assert (running.collection, waiting.collection) == ("", "a")
    queue.cancel(waiting)
    with pytest.raises(IllegalTransition, match=r"it is FAILED \(CANCELLED\), not ACCEPTED"):
        queue.change(waiting, priority=1)
