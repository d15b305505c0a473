"""Tests of :mod:`atp.queue`: reading the queue, and commands to daemons."""

from functools import partial
from uuid import uuid4

import pytest

from atp import queue
from atp.exceptions import InvalidOption, UnknownDaemon, UnknownInstance, UnknownType
from atp.models import Schedule, Type
from atp.states import Event

from .app.tasks import add, echo

pytestmark = pytest.mark.django_db


def test_get_finds_an_instance_by_uuid_or_identifier():
    """G13: an unknown Instance raises an error, even if other Instances have no identifier."""
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


def test_size_is_the_number_of_live_instances(host):
    echo.enqueue_many([{}, {}])
    add.enqueue(1)
    assert (queue.size(), queue.size(echo), queue.size("tests.add")) == (3, 2, 1)
    claimed = host.claim()
    for events, size in (([Event.START], 3), ([Event.FINISH], 0)):
        for one in claimed:
            host.move(one, *events)
        assert queue.size() == size


def test_unknown_type_is_rejected():
    """G13: a name that the database cannot store is rejected, too."""
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


def test_get_daemon_finds_a_daemon_by_uuid_or_name(world, host):
    for name in (host.uuid, str(host.uuid), str(host.uuid).upper(), "host:1"):
        assert queue.get_daemon(name) == host.row
    again = world.host("tests.echo")
    assert queue.get_daemon("host:1") == again.row  # the newest of that name


def test_unknown_daemon_or_command_is_rejected(world, host):
    odd = "", "x", "host", "host:", "host:2", "host:١", "host:999999999999", "\x00:1", uuid4()
    for name in odd:
        with pytest.raises(UnknownDaemon, match="There is no daemon"):
            queue.get_daemon(name)
        with pytest.raises(UnknownDaemon):
            queue.command(name, "quiet")
    with pytest.raises(InvalidOption, match="Did you mean 'quiet'"):
        queue.command(host.uuid, "quite")
    assert host.row.request == ""


def test_actor_given_as_by_must_be_printable_text(world, host):
    [identifier, *_] = host.types
    for by in (5, None, "\x00", "x" * 300):
        for verb, *given in (
            *((queue.command, host.uuid, "quiet"), (queue.hold,), (queue.drop, identifier)),
            *((queue.open_gate,), (queue.unlimit, identifier)),
            (partial(queue.limit, max_running=1), identifier),
        ):
            with pytest.raises(InvalidOption, match=r"^by"):
                verb(*given, by=by)
    assert host.row.request == ""
    assert not queue.gates()
    assert not queue.limits()
