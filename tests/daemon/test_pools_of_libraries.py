"""Libraries that keep a pool of processes of their own work in each attempt (G5)."""

import os
import sys

import pytest

from atp.models import Instance
from atp.states import State
from tests.app import tasks_pools as types
from tests.helpers import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/shm")

COUNT = 4
CASES = [
    ("joblib", None),
    ("executor", "fork"),
    ("kept_executor", "fork"),
    ("left_executor", "fork"),
    ("left_pool", "fork"),
    ("shared_memory", "spawn"),
]
# Other libraries, and other ways to start a process.
MORE = {
    "joblib_arrays": [None],
    "executor": ["spawn", "forkserver"],
    "kept_executor": ["spawn"],
    "pool": ["fork", "spawn", "forkserver"],
    "kept_pool": ["fork"],
    "dask": ["threads", "processes"],
}
CASES += [
    pytest.param(library, how, marks=pytest.mark.long) for library in MORE for how in MORE[library]
]


def shared():
    """Return the names of what libraries have in shared memory."""
    names = os.listdir("/dev/shm")
    return {name for name in names if name.startswith(("psm_", "sem.", "joblib", "loky", "pym-"))}


@pytest.mark.parametrize(("library", "how"), CASES, ids=lambda value: str(value or "-"))
def test_each_attempt_has_a_pool(atpd, library, how):
    pytest.importorskip(library.partition("_")[0] if library.startswith(("job", "dask")) else "os")
    before = shared()
    daemon = atpd(processes=1).ready()
    [worker] = daemon.workers()
    instances = types.use.enqueue_many({"library": library, "how": how} for _ in range(COUNT))
    for instance in instances:
        instance.wait(60)
    told = [line.message for each in instances for line in each.log.all()]
    assert Instance.objects.filter(state=State.FINISHED).count() == COUNT, told
    assert daemon.workers() == [worker]
    assert daemon.stop() == 0
    wait_for(lambda: shared() <= before, what="an empty /dev/shm")
    assert not daemon.facts("worker_died")
