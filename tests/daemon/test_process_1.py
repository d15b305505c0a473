"""A daemon that is the first process of a container: here, of a PID namespace."""

import shutil
import signal
import subprocess

import psutil
import pytest

from atp import queue
from tests.app.tasks_poison import keeps
from tests.helpers import DEADLINE, child_environment, manage, wait_for

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def _may_unshare():
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not _may_unshare(), reason="no PID namespaces can be made here"),
]


@pytest.fixture
def container(transactional_db, tmp_path):
    """The supervisor of a daemon that is process 1, and ``unshare``, which waits for it."""
    queue.register_all()
    with (tmp_path / "log").open("wb") as log:
        outside = subprocess.Popen(
            [*UNSHARE, *manage("atpd", "-p", "1", "-v", "2")],
            env=child_environment(),
            stdout=log,
            stderr=log,
        )
    try:
        [first] = wait_for(psutil.Process(outside.pid).children, what="process 1")
        yield first, outside
    finally:
        outside.kill()  # and with it all that is inside
        outside.wait(DEADLINE)


def test_it_reaps_and_stops_in_order(container, record):
    """A first process that did not reap what a worker leaves behind would collect zombies.

    G10: no default of the kernel stops process 1 by a signal that it does not handle.
    """
    first, outside = container
    keeps.enqueue(path=str(record.path)).wait(DEADLINE)
    [worker] = [p for p in first.children() if p.name().startswith("atpd-worker")]
    left = worker.children(recursive=True)
    assert len(left) == 3
    worker.kill()
    wait_for(lambda: not any(psutil.pid_exists(p.pid) for p in [worker, *left]), what="their end")
    first.send_signal(signal.SIGTERM)
    assert outside.wait(DEADLINE) == 0
