"""A daemon removes what is over, waits for nobody, and mends what it finds (G1, G11, G12)."""

import contextlib
from datetime import timedelta

import pytest
from django.db import connection

from atp import queue
from atp.models import Inputs, Instance, LogRecord, Task, Type
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for
from tests.store.broken import age

OFTEN = {"PURGE_EVERY": 0.2}


def over(identifier):
    """Nothing of this Type is to be kept any longer."""
    Type.objects.filter(identifier=identifier).update(retention=timedelta(microseconds=1))


def test_a_daemon_removes_what_is_over(atpd, media, record):
    """G12. A Type may keep nothing: what FINISHED is gone with its end, what failed stays.

    G1, G2: what was forgotten is done after all, as a live Instance without a Task gets one.
    """
    instances = types.noop.enqueue_many([{}] * 50)
    kinds = types.unkept, types.unkept_together
    finished, failed = ([kind.enqueue(fails=fails) for kind in kinds] for fails in (False, True))
    daemon = atpd(settings=OFTEN | {"SCAN_EVERY": 0.2})
    for instance in finished:
        assert instance.wait(DEADLINE).state == State.FINISHED
        assert not LogRecord.objects.filter(instance=instance.pk).exists()
        assert list(media.rglob(f"{instance.uuid}/*")) == []
    for instance in failed:
        assert instance.wait(DEADLINE).state == State.FAILED
    # Registration would put back the retention that the code declares; an end comes after it.
    instances[-1].wait(DEADLINE)
    over("daemon.noop")
    kept = {each.pk for each in failed}
    wait_for(lambda: set(Instance.objects.values_list("pk", flat=True)) == kept)
    daemon.wait_for_fact("purged")
    assert set(Inputs.objects.values_list("instance", flat=True)) == kept
    of_instances = LogRecord.objects.exclude(instance=None)
    assert set(of_instances.values_list("instance", flat=True)) == kept
    lost = types.note.using(run_after=timedelta(hours=1)).enqueue(path=str(record))
    age(lost.pk)
    Task.objects.filter(pk=lost.pk).delete()
    lost.wait(DEADLINE)
    assert (lost.state, lost.lost) == (State.FINISHED, 0)
    [mended] = wait_for(lambda: daemon.facts("mended"))
    assert str(lost.uuid) in mended["what"]
    assert not daemon.facts("scan_failed")
    assert queue.scan() == []
    assert daemon.stop() == 0


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")
def test_a_lock_of_somebody_else_holds_up_nothing_else(atpd):
    """G12, G11: the rest is removed, new ones are done, and the daemon keeps its identity.

    Of a LogRecord that is locked alone, see store/test_purge.py.
    """
    locked = types.noop.enqueue()
    daemon = atpd(settings=OFTEN).ready()
    locked.wait(DEADLINE)
    other = connection.copy()
    other.set_autocommit(False)
    with contextlib.closing(other):
        other.cursor().execute("SELECT FROM atp_instance FOR UPDATE")
        over("daemon.noop")
        types.noop.enqueue_many([{}] * 20)
        wait_for(lambda: set(Instance.objects.values_list("pk", flat=True)) == {locked.pk}, 60)
    wait_for(lambda: not Instance.objects.exists(), 60)
    assert not daemon.facts("database_failed")
    assert [fact["message"] for fact in daemon.facts("purge_failed")] == []
    assert len(daemon.facts("joined")) == 1
