"""The worker processes of a supervisor: which of them are stopped, and for what."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from atp.daemon.shared.running_page import NEVER, NOTHING, Page
from atp.daemon.supervisor.worker_processes import WorkerProcess, WorkerProcesses
from atp.daemon.system.processes import uptime
from tests.helpers import wait_for

FIRST, SECOND = (1, 1), (2, 1)


class Only:
    """The one worker of a supervisor, which the test plays: a process that sleeps."""

    def __init__(self, pid):
        self.pid = pid
        self.page = Page(2)
        self.processes = WorkerProcesses(self.page, 1)
        self.processes.add(WorkerProcess(0, pid))

    def run(self, key):
        """Be at this attempt, for a minute at most."""
        instance, attempt = key
        now = uptime()
        self.page.enter(0, instance, attempt, now + 60, now, 0, 0, 60.0, b"")

    def freeze(self, key):
        return self.processes.freeze(0, self.pid, key)

    def thaw(self, key):
        return self.processes.thaw(0, self.pid, key)

    @property
    def deadline(self):
        return self.page.read(0).deadline

    @property
    def is_stopped(self):
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def let_go(self):
        """Somebody else lets the process go on."""
        os.kill(self.pid, signal.SIGCONT)
        wait_for(lambda: not self.is_stopped, what="a process that goes on")


@pytest.fixture
def worker():
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleep) as process:
        yield Only(process.pid)
        process.kill()


def test_what_is_frozen_has_its_time_when_it_goes_on(worker):
    worker.run(FIRST)
    assert worker.freeze(FIRST)
    assert (worker.is_stopped, worker.deadline) == (True, NEVER)
    assert not worker.freeze(FIRST)
    assert worker.thaw(FIRST)
    wait_for(lambda: not worker.is_stopped, what="a process that goes on")
    assert worker.deadline <= uptime() + 60


def test_who_looks_at_what_is_frozen_leaves_it_so(worker):
    worker.run(FIRST)
    worker.freeze(FIRST)
    worker.processes.kill_if_running(0, worker.pid, NOTHING, "made room")
    assert worker.is_stopped


def test_what_somebody_else_has_let_go_is_not_stopped_for_good(worker):
    """It is at its next attempt, which would be killed for its time-out, and charged."""
    worker.run(FIRST)
    worker.freeze(FIRST)
    worker.let_go()
    worker.run(SECOND)
    worker.processes.kill_if_running(0, worker.pid, NOTHING, "made room")
    wait_for(lambda: not worker.is_stopped, what="a process that goes on")
    assert worker.freeze(SECOND)


def test_a_thaw_that_comes_late_leaves_the_time_of_the_next_attempt(worker):
    worker.run(FIRST)
    worker.page.put_off(0, uptime() + 1)
    worker.freeze(FIRST)
    worker.let_go()
    worker.run(SECOND)
    before = worker.deadline
    worker.thaw(FIRST)
    assert worker.deadline == before
