"""When a daemon removes how much; and that it keeps up, and waits for nobody (G12, G11)."""

import contextlib
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection

from atp.conf import settings
from atp.daemon.chores import purging
from atp.daemon.chores.chore import Chores
from atp.daemon.chores.purging import FIRST, LONGEST_BEHIND, MOST, Purge
from atp.daemon.dispatcher.queue_state import QueueState
from atp.daemon.system.timers import Timers
from atp.models import Inputs, Instance, LogRecord, Type
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

OFTEN = {"PURGE_EVERY": 0.2}


class Chore:
    """Purging as it is; the clock, and how long it takes to remove one, are the test's."""

    def __init__(self, monkeypatch, each):
        self.now, self.each, self.left, self.limits = 1000.0, each, 0, []
        self.wait, self.kept = 0.001, 0
        monkeypatch.setattr(purging, "uptime", lambda: self.now)
        monkeypatch.setattr("atp.daemon.system.timers.uptime", lambda: self.now)
        self.timers = Timers()
        core = SimpleNamespace(
            store=self,
            timers=self.timers,
            queue=QueueState(),
            identity=SimpleNamespace(is_registered=True),
        )
        self.purging = Purge(core)
        thread = SimpleNamespace(busy=False, submit=self._submit)
        self.chores = Chores(thread, [self.purging])

    def purge(self, *, limit, marks):
        self.limits.append(limit)
        self.kept, marks.passes_kept = self.kept - 1, self.kept > 0
        count = min(limit, self.left)
        self.left -= count
        self.now += self.wait + count * self.each
        return count

    def _submit(self, doing, call, then, failed):
        then(SimpleNamespace(value=call()))

    def run(self, seconds, rate):
        """Let so many a second come to be removed; returns how many were left at each step."""
        end, left = self.now + seconds, []
        while self.now < end:
            before = self.now
            self.now += 0.01
            self.chores.turn()
            self.left += round(rate * (self.now - before))
            left.append(self.left)
        return left


@pytest.fixture
def chore(monkeypatch):
    monkeypatch.setattr(connection, "close", lambda: None)
    return lambda each: Chore(monkeypatch, each)


def test_it_keeps_up_with_what_is_finished(chore):
    """What is over its retention stays less than is finished in a second, at its pace."""
    daemon = chore(1 / 40_000)
    daemon.run(300, rate=8_000)
    assert max(daemon.run(300, rate=8_000)) < 8_000


@pytest.mark.parametrize(("each", "last"), [(1 / 20_000, MOST), (1 / 100, FIRST)])
def test_the_longer_it_is_behind_the_more_at_once(chore, each, last):
    """But no more than are removed in a while."""
    daemon = chore(each)
    daemon.left = 10**6
    daemon.run(60, rate=0)
    assert daemon.limits[-1] == last


def test_where_each_removal_waits_long_it_keeps_up_all_the_same(chore):
    """As on SQLite, where somebody else writes all the time."""
    daemon = chore(1 / 40_000)
    daemon.wait = 0.9
    daemon.run(300, rate=2_000)
    assert max(daemon.run(300, rate=2_000)) < 10_000


def test_where_nothing_is_to_be_removed_it_seldom_looks(chore):
    daemon = chore(1)
    daemon.run(600, rate=0)
    assert len(daemon.limits) <= 600 / settings.PURGE_EVERY + 1


def test_what_failed_is_tried_again_with_less(chore):
    """G11: it costs no identity, since it holds nothing under it."""
    daemon = chore(1 / 1000)
    daemon.purging.failed(SimpleNamespace(error=OSError("gone")))
    daemon.left = 10**6
    daemon.run(settings.PURGE_EVERY + 1, rate=0)
    assert daemon.limits[0] == 250


def test_what_failed_calls_have_taught_it_is_not_forgotten(chore):
    """A call that is slow all the same must not become longer than may be waited for."""
    daemon = chore(1 / 50)
    for _ in range(2):
        daemon.purging.failed(SimpleNamespace(error=OSError("too long")))
    daemon.left = 10**4
    daemon.run(settings.PURGE_EVERY + 60, rate=0)
    assert set(daemon.limits) == {125}


def test_it_goes_on_behind_what_cannot_be_removed(chore):
    daemon = chore(1 / 1000)
    daemon.kept = 4
    daemon.run(settings.PURGE_EVERY / 2, rate=0)
    assert daemon.limits == [FIRST] * 5


def test_behind_very_many_that_cannot_be_removed_it_rests_ever_longer(chore):
    """Else it would ask a storage that refuses five times a second, without end."""
    daemon = chore(1 / 1000)
    daemon.kept = 10**6
    daemon.run(600, rate=0)
    assert len(daemon.limits) <= 600 / LONGEST_BEHIND + 10


def over(identifier):
    """Nothing of this Type is to be kept any longer."""
    Type.objects.filter(identifier=identifier).update(retention=timedelta(microseconds=1))


def test_a_daemon_removes_what_is_over(atpd):
    """G12."""
    instances = types.noop.enqueue_many([{}] * 50)
    daemon = atpd(settings=OFTEN)
    # Registration would put back the retention that the code declares; an end comes after it.
    instances[-1].wait(DEADLINE)
    over("daemon.noop")
    wait_for(lambda: not Instance.objects.exists(), 60)
    assert not Inputs.objects.exists()
    assert not LogRecord.objects.exclude(instance=None).exists()
    daemon.wait_for_fact("purged")


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")
@pytest.mark.parametrize(
    "lock",
    [
        "SELECT FROM atp_instance FOR UPDATE",
        "SELECT FROM atp_logrecord WHERE instance_id IS NOT NULL FOR UPDATE",
    ],
)
def test_a_lock_of_somebody_else_holds_up_nothing_else(atpd, lock):
    """G12, G11: the rest is removed, new ones are done, and the daemon keeps its identity."""
    locked = types.noop.enqueue()
    daemon = atpd(settings=OFTEN).ready()
    locked.wait(DEADLINE)
    other = connection.copy()
    other.set_autocommit(False)
    with contextlib.closing(other):
        other.cursor().execute(lock)
        over("daemon.noop")
        types.noop.enqueue_many([{}] * 20)
        wait_for(lambda: set(Instance.objects.values_list("pk", flat=True)) == {locked.pk}, 60)
    wait_for(lambda: not Instance.objects.exists(), 60)
    assert not daemon.facts("database_failed")
    assert [fact["message"] for fact in daemon.facts("purge_failed")] == []
    assert len(daemon.facts("joined")) == 1


@pytest.mark.parametrize("kind", [types.unkept, types.unkept_together])
def test_a_type_that_keeps_nothing(atpd, media, kind):
    """G12: what FINISHED is gone with its end, and who waits is told so; what failed stays."""
    finished, failed = kind.enqueue(), kind.enqueue(fails=True)
    atpd()
    assert finished.wait(DEADLINE).state == State.FINISHED
    assert failed.wait(DEADLINE).state == State.FAILED
    assert set(Instance.objects.values_list("pk", flat=True)) == {failed.pk}
    assert not LogRecord.objects.filter(instance=finished.pk).exists()
    assert list(media.rglob(f"{finished.uuid}/*")) == []
