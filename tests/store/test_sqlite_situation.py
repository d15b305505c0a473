"""The store for SQLite: what a claim has seen without the lock counts if nobody wrote since."""

import pytest
from django.db import connection

from atp.conf import settings
from atp.exceptions import LeaseLost
from atp.models import Daemon, Instance, Task, Type
from atp.states import State
from atp.store.sqlite import SQLiteStore
from tests.helpers import remove_by_hand

from ..helpers import Thread
from .world import ONE, SECOND, TWO, World, registration, scope

pytestmark = [
    pytest.mark.skipif(connection.vendor != "sqlite", reason="that of SQLite"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def world(transactional_db, tmp_path):
    with World(SQLiteStore(settings.DATABASE), tmp_path) as world:
        world.store.register([registration(ONE), registration(TWO)])
        yield world


@pytest.fixture
def after_the_look(world, monkeypatch):
    """Let another connection do something between the look of the next claim and its lock."""

    def do(something):
        atomic = world.store.atomic

        def later():
            monkeypatch.setattr(world.store, "atomic", atomic)
            Thread(something).result()
            return atomic()

        monkeypatch.setattr(world.store, "atomic", later)

    return do


def test_if_nobody_has_written_it_is_not_asked_again(world, monkeypatch):
    host, asked = world.host(), []
    world.enqueue()
    situation = world.store._situation
    monkeypatch.setattr(
        world.store, "_situation", lambda *args, **kw: asked.append(args) or situation(*args, **kw)
    )
    assert len(host.claim()) == 1
    assert len(asked) == 1


def test_a_gate_is_shut(world, after_the_look):
    """G9: what is held from now on is not claimed any more."""
    host = world.host()
    [key] = world.enqueue()
    after_the_look(lambda: world.store.shut(scope(ONE), "hold"))
    assert host.claim() == []
    assert world.state(key) == State.ACCEPTED


def test_the_lease_is_over(world, after_the_look):
    """G6: and the daemon's row is gone."""
    host = world.host()
    [key] = world.enqueue()
    after_the_look(lambda: Daemon.objects.filter(uuid=host.uuid).delete())
    with pytest.raises(LeaseLost):
        host.claim()
    assert world.state(key) == State.ACCEPTED


def test_something_has_become_late(world, after_the_look):
    """G8: it is failed, and what waits behind it is claimed."""
    host = world.host()
    late, other = world.enqueue(2)
    before = world.store.now() - SECOND

    def make_late():
        Instance.objects.filter(pk=late).update(start_before=before)
        Task.objects.filter(pk=late).update(start_before=before)

    after_the_look(make_late)
    assert [claimed.instance for claimed in host.claim()] == [other]
    assert world.get(late).reason == "MISSED"


def test_a_type_is_unregistered(world, after_the_look):
    host = world.host()
    [gone] = world.enqueue(type=TWO)
    [key] = world.enqueue()

    def unregister():
        remove_by_hand(Instance.objects.filter(pk=gone))
        Type.objects.filter(identifier=TWO).delete()

    after_the_look(unregister)
    assert [claimed.instance for claimed in host.claim()] == [key]
