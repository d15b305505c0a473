"""Libraries that keep a pool of processes of their own work in each attempt (G5)."""

import os
import sys

import pytest

from atp.models import Instance
from atp.states import State
from tests.app import tasks_pools as types
from tests.helpers import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/shm")

COUNT, FEW = 20, 4
LIBRARIES = [
    ("joblib", None),
    ("joblib_arrays", None),
    ("executor", "fork"),
    ("executor", "spawn"),
    ("executor", "forkserver"),
    ("kept_executor", "fork"),
    ("kept_executor", "spawn"),
    ("left_executor", "fork"),
    ("pool", "fork"),
    ("pool", "spawn"),
    ("pool", "forkserver"),
    ("kept_pool", "fork"),
    ("left_pool", "fork"),
    ("shared_memory", "spawn"),
    ("dask", "threads"),
    ("dask", "processes"),
]
# Those that start an interpreter for each process take their time.
IS_SLOW = {"spawn", "forkserver", "processes"}
CASES = [
    pytest.param(
        library, how, count, marks=pytest.mark.long if how in IS_SLOW and count > FEW else ()
    )
    for library, how in LIBRARIES
    for count in ([FEW, COUNT] if how in IS_SLOW else [COUNT])
]


def shared():
    """Return the names of what libraries have in shared memory."""
    names = os.listdir("/dev/shm")
    return {name for name in names if name.startswith(("psm_", "sem.", "joblib", "loky", "pym-"))}


@pytest.mark.parametrize(("library", "how", "count"), CASES, ids=lambda value: str(value or "-"))
def test_each_attempt_has_a_pool(atpd, library, how, count):
    pytest.importorskip(library.partition("_")[0] if library.startswith(("job", "dask")) else "os")
    before = shared()
    daemon = atpd(processes=1).ready()
    [worker] = daemon.workers()
    instances = types.use.enqueue_many({"library": library, "how": how} for _ in range(count))
    for instance in instances:
        instance.wait(60)
    told = [line.message for each in instances for line in each.log.all()]
    assert Instance.objects.filter(state=State.FINISHED).count() == count, told
    assert daemon.workers() == [worker]
    assert daemon.stop() == 0
    wait_for(lambda: shared() <= before, what="an empty /dev/shm")
    assert not daemon.facts("worker_died")
