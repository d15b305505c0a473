"""Tests of :mod:`atp.queue`: the verbs of applications and operators."""

from uuid import uuid4

import pytest

from atp import queue
from atp.exceptions import (
    TypeInUse,
    UnknownInstance,
    UnknownType,
    UnregisteredHandler,
)
from atp.models import Instance, LogRecord, Response, Schedule, Type
from atp.states import Event, State
from atp.store.values import Move, ResponseData

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
        finish = Move(event=Event.FINISH, instance=one.pk, attempt=1, response=answer)
        assert host.record(finish) == []
        assert queue.response(case).value == 5

    @pytest.mark.parametrize("read", [queue.response, queue.inputs, queue.steps, queue.task])
    def test_what_belongs_to_one_is_found_by_its_uuid(self, read):
        one = echo.enqueue()
        found, expected = read(str(one.uuid)), read(one)
        assert list(found) == list(expected) if read is queue.steps else found == expected
        with pytest.raises(UnknownInstance, match="There is no Instance"):
            read(uuid4())

    @pytest.mark.parametrize("count", [queue.size, queue.waiting])
    def test_counting_a_type_that_nobody_knows(self, count):
        queue.register_all()
        assert count("tests.echo") == 0
        with pytest.raises(UnknownType, match=r"Did you mean 'tests\.echo'\?"):
            count("tests.ecko")

    def test_looking_in_a_type_that_nobody_knows(self):
        queue.register_all()
        with pytest.raises(UnknownInstance, match=r"Did you mean 'tests\.echo'\?"):
            queue.get(type="tests.ecko", identifier="a")

    def test_size_is_what_is_live(self, host):
        echo.enqueue_many([{}, {}])
        add.enqueue(1)
        assert (queue.size(), queue.size(echo), queue.size("tests.add")) == (3, 2, 1)
        run(host, Event.START)
        assert queue.size() == 3
        for one in Instance.objects.all():
            finish = Move(event=Event.FINISH, instance=one.pk, attempt=1)
            assert host.record(finish) == []
        assert queue.size() == 0


class TestTypes:
    def test_register_again_is_an_update(self, settings):
        settings.ATP = {"MAX_RESTARTS": 8}
        queue.register(echo, by="ann")
        assert Type.objects.get(identifier="tests.echo").max_restarts == 8
        assert LogRecord.objects.about("type:tests.echo").last().who == "ann"

    def test_register_all(self):
        Schedule.objects.all().delete()
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
