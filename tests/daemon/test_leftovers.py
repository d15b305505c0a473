"""What an attempt leaves running is found and ended, and nothing else (G5)."""

import os
import subprocess
import sys
from multiprocessing import resource_tracker

import pytest

from atp.daemon.worker.isolation import leftovers as module
from atp.daemon.worker.isolation.leftovers import Leftovers, Unkillable, has_children
from atp.words import attempt_messages

from ..nonsense import is_made_by, tells
from .harness import is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def started():
    """Start processes that would go on for long; those that are left are ended."""
    running = []

    def start(*command):
        running.append(subprocess.Popen(command or ("sleep", "300")))
        return running[-1].pid

    yield start
    for each in running:
        each.kill()
        each.wait()


def test_what_was_there_before_is_left_alone(started):
    before = started()
    leftovers = Leftovers()
    mine = [started(), started()]
    assert has_children()
    assert tells(leftovers.end(), attempt_messages.left_behind(["sleep"], 2))
    assert is_alive(before)
    assert not any(map(is_alive, mine))
    assert leftovers.end() == ""


def test_what_is_kept(started):
    leftovers = Leftovers()
    kept = started()
    leftovers.keep()
    other = started("sh", "-c", "sleep 300; true")
    assert is_made_by(leftovers.end(), attempt_messages.left_behind, "that it left behind w")
    assert is_alive(kept)
    assert not is_alive(other)


def test_the_dead_are_buried(started):
    leftovers = Leftovers()
    dead = started("true")
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    assert leftovers.end() == ""
    with pytest.raises(ChildProcessError):
        os.waitpid(dead, os.WNOHANG)


def test_what_somebody_else_buries_meanwhile(started, monkeypatch):
    """A thread of a library may wait for its process, as that of asyncio does."""
    leftovers = Leftovers()
    started("true")

    def gone(pid, options):
        raise ChildProcessError

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "waitpid", gone)
        leftovers.end()


def test_helpers_of_python_are_left_alone():
    """The resource tracker of multiprocessing serves whatever runs next, too."""
    leftovers = Leftovers()
    resource_tracker.ensure_running()
    try:
        assert leftovers.end() == ""
        assert is_alive(resource_tracker._resource_tracker._pid)
    finally:
        resource_tracker._resource_tracker._stop()


def test_what_cannot_be_ended(started, monkeypatch):
    monkeypatch.setattr(module.descendants, "kill", lambda pid, number=0: None)
    monkeypatch.setattr(module.descendants, "PATIENCE", 0.05)
    leftovers = Leftovers()
    started()
    with pytest.raises(Unkillable) as caught:
        leftovers.end()
    words = "1 process that it left behind could not be ended"
    assert is_made_by(str(caught.value), attempt_messages.left_behind, words)


def test_what_is_killed_at_the_last_moment_has_ended(started, monkeypatch):
    """Who comes to look only when his patience is over, has still killed it."""
    monkeypatch.setattr(module.descendants, "PATIENCE", 0.0)
    leftovers = Leftovers()
    pid = started()
    words = "1 process that it left behind was ended"
    assert is_made_by(leftovers.end(), attempt_messages.left_behind, words)
    assert not is_alive(pid)
