"""Tailers in daemons: each record once, whatever is killed (G18); the fence of a transaction."""

from django.contrib.auth.models import Group

from atp import queue
from atp.models import Instance, Tailer
from atp.schedules.models import Overlap
from atp.states import Reason, State
from tests.app import tasks_tailers as types
from tests.helpers import DEADLINE, wait_for

from .scenario import lose, on_postgresql


def groups(*names):
    Group.objects.bulk_create(Group(name=name) for name in names)


def names():
    """The names that came out of the tailer, sorted."""
    found = Instance.objects.filter(type__identifier="tailers.work", state=State.FINISHED)
    return sorted(instance.response.value for instance in found)


def rows():
    return list(Group.objects.values_list("name", flat=True))


def test_scheduled_tailer_reads_new_rows_and_rejects_those_that_kill(atpd):
    """G5, G18: such a record becomes a dead letter, and delays no other."""
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


@on_postgresql
def test_lost_attempt_commits_no_transaction(begin, record, flag):
    """G4."""
    instance, *_ = begin(types.committing, event="written")
    lose(instance)
    flag.touch()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert rows() == ["attempt 2"]
    assert [line["attempt"] for line in record.lines("committed")] == [2]
