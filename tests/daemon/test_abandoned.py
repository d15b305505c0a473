"""Programs that a dead daemon of this host has left, told by their marks (G3, G5)."""

import contextlib
import os
import subprocess
import sys

import pytest

from atp.daemon.system import abandoned
from atp.daemon.system.descendants import MARK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@contextlib.contextmanager
def marked(mark):
    """A program with this mark; yields whether it is found."""
    program = subprocess.Popen(["sleep", "300"], env=os.environ | {MARK: mark})
    try:
        yield program.pid in abandoned._found()
    finally:
        program.kill()
        program.wait()


def dead():
    """Return the pid of a process that is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return gone.pid


def test_those_of_a_living_daemon_are_left_alone():
    with marked(abandoned.mark("atp")) as is_found:
        assert not is_found


def test_those_of_a_dead_daemon_are_found():
    with marked(f"atp/{abandoned._namespace()}/{dead()}/1") as is_found:
        assert is_found


def test_those_of_another_container_are_left_alone():
    """Its pids are not ours: the daemon may be alive under another one."""
    with marked(f"atp/pid:[1]/{dead()}/1") as is_found:
        assert not is_found
