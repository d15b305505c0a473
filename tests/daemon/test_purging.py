"""A daemon removes what is over, waits for nobody, and mends what it finds (G1, G11, G12)."""

from datetime import timedelta

from atp import queue
from atp.models import Inputs, Instance, LogRecord, Task, Type
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for
from tests.store.broken import age

OFTEN = {"PURGE_EVERY": 0.2}


def test_daemon_removes_old_instances_and_repairs_a_lost_task(atpd, media, record):
    """G1, G2, G12: a Type can keep nothing of what FINISHED; what failed stays."""
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
    Type.objects.filter(identifier="daemon.noop").update(retention=timedelta(microseconds=1))
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
