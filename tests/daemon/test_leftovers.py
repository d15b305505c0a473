"""What an attempt leaves running is found and ended, and nothing else (G5)."""

import os
import subprocess
import sys
from multiprocessing import resource_tracker

import pytest

from atp.daemon import leftovers as module
from atp.daemon.leftovers import Leftovers, Unkillable, has_children

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
    assert leftovers.end() == "2 processes that it left behind were ended: sleep"
    assert is_alive(before)
    assert not any(map(is_alive, mine))
    assert leftovers.end() == ""


def test_what_is_kept(started):
    leftovers = Leftovers()
    kept = started()
    leftovers.keep()
    other = started("sh", "-c", "sleep 300; true")
    assert leftovers.end().startswith(("1 process", "2 processes"))
    assert is_alive(kept)
    assert not is_alive(other)


def test_the_dead_are_buried(started):
    leftovers = Leftovers()
    dead = started("true")
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    assert leftovers.end() == ""
    with pytest.raises(ChildProcessError):
        os.waitpid(dead, os.WNOHANG)


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
    with pytest.raises(Unkillable, match="1 process that it left behind could not be ended"):
        leftovers.end()


def test_what_is_killed_at_the_last_moment_has_ended(started, monkeypatch):
    """Who comes to look only when his patience is over, has still killed it."""
    monkeypatch.setattr(module.descendants, "PATIENCE", 0.0)
    leftovers = Leftovers()
    pid = started()
    assert "1 process that it left behind was ended" in leftovers.end()
    assert not is_alive(pid)
