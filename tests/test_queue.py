"""Tests of :mod:`atp.queue`: the verbs of applications and operators."""

from uuid import uuid4

import pytest

from atp import queue
from atp.exceptions import UnknownInstance, UnknownType
from atp.models import Instance, Response, Schedule, Type
from atp.states import Event, State
from atp.store.values import Move

from .app.tasks import add, echo
from .helpers import Thread, wait_for

pytestmark = pytest.mark.django_db


def run(host, *events, **details):
    """Claim what there is, and record these events of each."""
    for claimed in host.claim():
        host.move(claimed, *events, **details)


def test_one_is_found_by_uuid_or_identifier():
    """G13: an error says if there is none, also where there are some without an identifier."""
    queue.register_all()
    one = echo.using(identifier="a").enqueue()
    echo.enqueue_many([{}, {}])
    assert queue.get(one.uuid) == queue.get(str(one.uuid)) == one
    assert queue.get(type=echo, identifier="a") == one
    assert queue.get(type="tests.echo", identifier="a") == one
    for asked in (
        *({"uuid": uuid4()}, {"uuid": "nonsense"}, {"type": "tests.echo", "identifier": "b"}),
        *({"type": "tests.add", "identifier": "a"}, {"type": "unknown", "identifier": "a"}),
        *({"type": "tests.echo"}, {"identifier": "a"}, {}),
    ):
        with pytest.raises(UnknownInstance):
            queue.get(**asked)
    with pytest.raises(UnknownInstance, match=r"Did you mean 'tests\.echo'\?"):
        queue.get(type="tests.ecko", identifier="a")
    for read in (queue.response, queue.inputs, queue.steps, queue.task):
        found, expected = read(str(one.uuid)), read(one)
        assert list(found) == list(expected) if read is queue.steps else found == expected
        with pytest.raises(UnknownInstance, match="There is no Instance"):
            read(uuid4())


def test_size_is_what_is_live(host):
    echo.enqueue_many([{}, {}])
    add.enqueue(1)
    assert (queue.size(), queue.size(echo), queue.size("tests.add")) == (3, 2, 1)
    run(host, Event.START)
    assert queue.size() == 3
    for one in Instance.objects.all():
        finish = Move(event=Event.FINISH, instance=one.pk, attempt=1)
        assert host.record(finish) == []
    assert queue.size() == 0


def test_a_type_that_nobody_knows():
    """G13: also where the database would not take the text."""
    assert queue.declared("tests.echo") is echo
    for identifier in ("tests.ecko", "a\0b", "\ud800", ""):
        for find in (queue.declared, queue.get_type):
            with pytest.raises(UnknownType):
                find(identifier)
    for count in (queue.size, queue.waiting):
        with pytest.raises(UnknownType, match=r"Did you mean 'tests\.echo'\?"):
            count("tests.ecko")
    Schedule.objects.all().delete()
    Type.objects.all().delete()
    queue.register_all()
    assert (queue.size("tests.echo"), queue.waiting("tests.echo")) == (0, 0)


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
