"""Handing over on SQLite: the daemon's row says what, until the daemon has heard of it."""

import errno
import os
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from django.db import connection

from atp.payload.codec import Payload
from atp.states import Event, State
from atp.store.sqlite.wakeups.handover import ChannelLock
from atp.store.values import Submission

from .handings import heard, is_waiting, say
from .world import registration

pytestmark = [
    pytest.mark.skipif(connection.vendor != "sqlite", reason="that of SQLite"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def world(handing_world):
    return handing_world


class Claim(NamedTuple):
    instance: int
    attempt: int


def ears(world):
    return sorted(path.stem for path in Path(world.store.lock_folder).glob("*.ear"))


def test_what_nobody_has_heard_of_stays_there(world, listening):
    """G1: a daemon that says again that it is idle, and has not looked, would lose it."""
    host, ear = listening()
    [key] = world.enqueue()
    say(world, host, ear)
    assert not host.row.idle
    say(world, host, ear, idle=False)
    [other] = world.enqueue()
    assert is_waiting(world, other)
    assert [claimed.instance for _, claimed in heard(ear)] == [key]
    assert heard(ear) == []
    say(world, host, ear)
    assert (host.row.idle, host.row.channel) == (True, ear.channel)


def test_it_is_heard_of_once_however_often_it_is_looked_at(world, listening):
    """G1: it would be run twice."""
    _, ear = listening()
    [key] = world.enqueue()
    assert [claimed.instance for _, claimed in heard(ear)] == [key]
    world.enqueue(3)
    assert heard(ear) == []


def test_nor_by_a_listener_that_has_lost_its_file_for_a_moment(world, listening, monkeypatch):
    """G1: it connects again, and what it has heard of still stands there."""
    _, ear = listening()
    [key] = world.enqueue()
    assert [claimed.instance for _, claimed in heard(ear)] == [key]
    with monkeypatch.context() as gone:
        gone.setattr(ear, "_file_id", lambda: ())
        assert heard(ear) == []
    assert ear.wait(0)
    assert heard(ear) == []


def test_it_is_heard_of_by_who_looks_late(world, listening):
    """G15: what keeps the daemon from looking is over at some time."""
    _, ear = listening()
    [key] = world.enqueue()
    world.enqueue(3, collection="other")
    assert [claimed.instance for _, claimed in heard(ear)] == [key]


def test_what_was_taken_away_meanwhile_is_not_heard_of(world, listening):
    """G6: another daemon may have it."""
    host, ear = listening()
    world.enqueue()
    host.lose_lease()
    other = world.host()
    assert world.store.sweep(daemon=other.uuid).expired == 1
    [claimed] = other.claim()
    assert heard(ear) == []
    other.move(claimed, Event.START, Event.FINISH)


def test_what_it_no_longer_holds_is_not_waited_for(world, listening):
    """G15: it would never be handed anything again."""
    host, ear = listening()
    [key] = world.enqueue()
    task = world.task(key)
    host.move(Claim(task.pk, task.attempt), Event.RELEASE)
    say(world, host, ear)
    assert (host.row.idle, host.row.channel) == (True, ear.channel)


def test_a_daemon_that_was_killed_is_handed_nothing(world, listening):
    """G15: the kernel has freed its file, which is still there."""
    _, ear = listening()
    os.close(ear._channel_lock._lock)
    try:
        [key] = world.enqueue()
        assert is_waiting(world, key)
        assert ears(world) == [ear.channel]
        # The next that comes removes it.
        with closing(world.store.listener()) as next_one:
            assert next_one.wait(0)
            assert ears(world) == [next_one.channel]
    finally:
        ear._channel_lock._lock = os.open(os.devnull, os.O_RDONLY)


def test_a_file_that_is_not_ours_is_not_relied_upon(world, listening, monkeypatch):
    """Whether another user's listener is alive cannot be seen."""
    listening()
    monkeypatch.setattr("atp.store.sqlite.wakeups.handover.os.access", lambda path, mode: False)
    [key] = world.enqueue()
    assert is_waiting(world, key)


def test_what_cannot_be_found_out_is_no_error(world, listening, monkeypatch):
    """A process that may open no more files has always been able to enqueue."""

    def refused(path):
        raise OSError(errno.EMFILE, "too many open files")

    listening()
    monkeypatch.setattr("atp.store.filelock.is_free", refused)
    [key] = world.enqueue()
    assert is_waiting(world, key)


def test_where_no_file_can_be_made_nothing_is_handed_over(world, monkeypatch):
    """The listener tells of commits all the same."""

    def refused(folder):
        raise PermissionError(folder)

    monkeypatch.setattr("atp.store.sqlite.wakeups.handover.ChannelLock", refused)
    with closing(world.store.listener()) as ear:
        assert ear.wait(0)
        assert ear.channel == ""
        world.enqueue()
        assert ear.wait(0)


def test_its_file_is_gone_when_it_is_closed(tmp_path):
    folder = tmp_path / "new"
    first, second = ChannelLock(folder), ChannelLock(folder)
    assert len(list(folder.iterdir())) == 2
    first.close()
    assert [path.stem for path in folder.iterdir()] == [second.name]
    second.close()
    assert list(folder.iterdir()) == []


def test_inputs_of_any_size(world, listening):
    _, ear = listening()
    data = '"' + "a" * 100_000 + '"'
    [instance] = world.store.enqueue(registration(), [Submission(Payload("json", data))])
    assert world.state(instance.pk) == State.SCHEDULED
    assert [claimed.data for _, claimed in heard(ear)] == [data]
