"""What is counted of memory (G5)."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from atp.daemon.shared.running_page import Running
from atp.daemon.system import descendants, memory
from atp.daemon.system.memory import MemoryWatch
from atp.words import attempt_messages
from tests.helpers import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
MIB = 1 << 20

_HOLD = """
import os, sys
kept = bytearray(b"x") * ({size} << 20)
for _ in range({copies}):
    if os.fork() == 0:
        break
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(size, copies=0):
    """A process that holds so many MiB, and copies of it that share them."""
    code = _HOLD.format(size=size, copies=copies)
    held = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        for _ in range(copies + 1):
            held.stdout.readline()
        yield held.pid
    finally:
        held.communicate()


def running(allowed, before=0):
    return Running(1, 1, 0.0, 0.0, allowed * MIB, before)


def excesses(pid, attempt):
    return list(MemoryWatch().excesses({pid: attempt}))


@pytest.fixture(autouse=True)
def facts(monkeypatch):
    """The facts of the message in its place."""
    monkeypatch.setattr(attempt_messages, "too_much_memory", lambda *facts: facts)


def test_what_a_process_holds():
    with holder(100) as pid:
        assert 100 * MIB <= memory.in_use(pid) < 130 * MIB
        assert excesses(pid, running(130)) == []
        [(found, why)] = excesses(pid, running(50))
    assert found == pid
    taken, others, allowed = why
    assert 100 * MIB <= taken < 130 * MIB
    assert (others, allowed) == (0, 50 * MIB)


def test_what_was_there_before_does_not_count():
    with holder(100) as pid:
        assert excesses(pid, running(20, before=memory.in_use(pid))) == []
    with holder(100, copies=3) as pid:
        assert excesses(pid, running(20, before=memory.in_use(pid))) == []


def test_descendants_count_and_what_they_share_counts_once():
    with holder(60, copies=3) as pid:
        assert excesses(pid, running(130)) == []
        [(_, why)] = excesses(pid, running(40))
    assert why[1] == 3


def test_a_process_that_is_gone():
    assert memory.in_use(2**22 + 1) == memory.share(2**22 + 1) == 0
    assert excesses(2**22 + 1, running(1)) == []


def test_descendants_are_found_and_spared():
    with holder(1, copies=2) as pid:
        below = descendants.descendants([os.getpid()], sparing=())[os.getpid()]
        assert sum(each.parent == pid for each in below) == 2
        spared = descendants.descendants([os.getpid()], sparing={pid})[os.getpid()]
        assert not {pid} & {each.pid for each in spared}
        assert not [each for each in spared if each.parent == pid]
    wait_for(lambda: pid not in descendants.table())
