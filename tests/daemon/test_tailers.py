"""Tailers in daemons: each record once, whatever is killed (G18); the fence of a transaction."""

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from atp import queue
from atp.models import Daemon, Instance, Tailer
from atp.schedules.models import Overlap
from atp.states import Event, Reason, State
from atp.store import get_store
from atp.store.values import Move
from tests.app import tasks_tailers as types
from tests.helpers import DEADLINE, wait_for


def groups(*names):
    Group.objects.bulk_create(Group(name=name) for name in names)


def names():
    """The names that came out of the tailer, sorted."""
    found = Instance.objects.filter(type__identifier="tailers.work", state=State.FINISHED)
    return sorted(instance.response.value for instance in found)


def rows():
    return list(Group.objects.values_list("name", flat=True))


def test_what_comes_into_the_table_is_worked_on(atpd):
    """G18: a schedule starts to read, again and again.

    G5: a record that kills its worker keeps no other. It is put aside, kills the worker that maps
    it alone, and is a dead letter.
    """
    groups("a", "b")
    queue.create_schedule("groups", "tailers.groups", every=1, overlap=Overlap.SKIP)
    atpd(processes=2)
    wait_for(lambda: names() == ["a", "b"])
    groups("c")
    wait_for(lambda: names() == ["a", "b", "c"])
    assert rows() == []
    wait_for(lambda: Tailer.objects.get().enqueued == 3)
    groups("d", "kill 1", "e", "raise 1", "kill 2", "f")
    aside = Instance.objects.filter(type__identifier="tailers.groups.rejected", state=State.FAILED)
    wait_for(lambda: aside.count() == 3)
    wait_for(lambda: names() == ["a", "b", "c", "d", "e", "f"])
    reasons = sorted(aside.values_list("reason", flat=True))
    assert reasons == [Reason.ERROR, Reason.STALE, Reason.STALE]
    assert rows() == []


def test_an_attempt_that_lost_its_task_commits_nothing(atpd, record, flag):
    """G4: the fence of a transaction of a handler."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: nobody takes the Task away while the block writes")
    instance = types.committing.enqueue(path=str(record), until=str(flag))
    atpd(processes=1)
    record.wait_for("written")
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    lost = Move(event=Event.EXPIRE, instance=instance.pk, attempt=1, who="the test")
    assert get_store().record([lost], daemon=Daemon.objects.get().uuid) == []
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert rows() == ["attempt 2"]
    assert [line["attempt"] for line in record.lines("committed")] == [2]
