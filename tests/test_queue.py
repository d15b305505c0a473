"""Tests of :mod:`atp.queue`: the verbs of applications and operators."""

from datetime import timedelta
from uuid import uuid4

import pytest

from atp import queue
from atp.exceptions import (
    IllegalTransition,
    TypeInUse,
    UnknownInstance,
    UnknownType,
    UnregisteredHandler,
)
from atp.models import Instance, LogRecord, Response, Type
from atp.states import LIVE, Event, Reason, State
from atp.store import get_store
from atp.store.values import Change, ResponseData

from .app.tasks import add, echo
from .helpers import Thread, wait_for

pytestmark = pytest.mark.django_db


def run(host, *events, **details):
    """Claim what there is, and record these events of each."""
    for claimed in host.claim():
        host.move(claimed, *events, **details)


class TestLooking:
    def test_by_uuid_or_identifier(self):
        one = echo.using(identifier="a").enqueue()
        assert queue.get(one.uuid) == queue.get(str(one.uuid)) == one
        assert queue.get(type=echo, identifier="a") == one
        assert queue.get(type="tests.echo", identifier="a") == one

    @pytest.mark.parametrize(
        "asked",
        [
            {"uuid": uuid4()},
            {"uuid": "nonsense"},
            {"type": "tests.echo", "identifier": "b"},
            {"type": "tests.add", "identifier": "a"},
            {"type": "unknown", "identifier": "a"},
            {"type": "tests.echo"},
            {"identifier": "a"},
            {},
        ],
        ids=str,
    )
    def test_one_that_does_not_exist(self, asked):
        """G13: also where there are some without an identifier."""
        echo.using(identifier="a").enqueue()
        echo.enqueue_many([{}, {}])
        with pytest.raises(UnknownInstance):
            queue.get(**asked)

    def test_response(self, host):
        one = echo.enqueue()
        assert queue.response(one) is None
        answer = ResponseData(content_type="application/json", data=b"5", size=1)
        run(host, Event.START)
        case = Instance.objects.get(pk=one.pk)
        finish = Change(event=Event.FINISH, instance=one.pk, attempt=1, response=answer)
        assert host.record(finish) == []
        assert queue.response(case).value == 5

    def test_size_is_what_is_live(self, host):
        echo.enqueue_many([{}, {}])
        add.enqueue(1)
        assert (queue.size(), queue.size(echo), queue.size("tests.add")) == (3, 2, 1)
        run(host, Event.START)
        assert queue.size() == 3
        for one in Instance.objects.all():
            finish = Change(event=Event.FINISH, instance=one.pk, attempt=1)
            assert host.record(finish) == []
        assert queue.size() == 0


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
        fail = Change(event=Event.FAIL, instance=failed.pk, reason=Reason.CANCELLED)
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

    def test_in_chunks(self, monkeypatch):
        monkeypatch.setattr(queue, "CHUNK", 2)
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
        end = Change(event=Event.FAIL, instance=running.pk, attempt=1, reason=Reason.CANCELLED)
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
        monkeypatch.setattr(queue, "CHUNK", 2)
        add.enqueue_many([(n,) for n in range(5)])
        echo.enqueue()
        past = get_store().now() - timedelta(days=2)
        run(host, Event.START, Event.FINISH, time=past)
        assert queue.purge("tests.echo") == 0
        assert queue.purge() == 5
        assert [one.type.identifier for one in Instance.objects.all()] == ["tests.echo"]


class TestTypes:
    def test_register_again_is_an_update(self, settings):
        settings.ATP = {"MAX_RESTARTS": 8}
        queue.register(echo, by="ann")
        assert Type.objects.get(identifier="tests.echo").max_restarts == 8
        assert LogRecord.objects.about("type:tests.echo").last().who == "ann"

    def test_register_all(self):
        Type.objects.all().delete()
        queue.register_all()
        assert {"tests.echo", "tests.add"} <= set(Type.objects.values_list("identifier", flat=True))

    @pytest.mark.parametrize("identifier", ["tests.ecko", "a\0b", "\ud800", ""])
    def test_a_type_that_nobody_knows(self, identifier):
        """G13: also where the database would not take the text."""
        for find in (queue.declared, queue.get_type):
            with pytest.raises(UnknownType):
                find(identifier)

    def test_a_type_as_it_is_declared(self):
        assert queue.declared("tests.echo") is echo

    def test_a_type_that_is_declared_elsewhere(self):
        Type.objects.filter(identifier="tests.echo").update(identifier="tests.elsewhere")
        with pytest.raises(UnregisteredHandler, match="no handler"):
            queue.declared("tests.elsewhere")

    def test_unregister(self):
        queue.unregister("tests.echo")
        assert not Type.objects.filter(identifier="tests.echo").exists()
        with pytest.raises(UnknownType):
            queue.unregister("tests.echo")

    def test_unregister_while_instances_exist(self):
        """RFC 14."""
        echo.enqueue()
        with pytest.raises(TypeInUse):
            queue.unregister("tests.echo")


@pytest.mark.django_db(transaction=True)
def test_rfc_14s_own_demonstration(world, host):
    """SequenceSum: registered, enqueued, polled by identifier, read, deleted."""
    of = add.using(identifier="Task001")
    queue.register(of)
    of.enqueue(1, 2, 3, 4, 5)
    working = Thread(run, host, Event.START, Event.FINISH)
    wait_for(lambda: queue.get(type=add, identifier="Task001").state == State.FINISHED)
    working.result()
    one = queue.get(type=add, identifier="Task001")
    assert [record.event for record in one.log] == ["enqueue", "claim", "start", "finish"]
    assert queue.delete(one) == 1
    assert not Response.objects.exists()
