"""What a handler changed of its process is put back (G5)."""

import os
import signal
import sys

import pytest

from atp.daemon.surroundings import Surroundings


@pytest.fixture
def surroundings(monkeypatch):
    monkeypatch.setenv("ATP_TEST_KEPT", "as it was")
    found = Surroundings()
    yield found
    found.restore()


def test_environment(surroundings):
    """What was changed or removed comes back; what was added stays."""
    os.environ["ATP_TEST_KEPT"] = "other"
    path = os.environ.pop("PATH")
    os.environ["ATP_TEST_ADDED"] = "new"
    surroundings.restore()
    assert (os.environ["ATP_TEST_KEPT"], os.environ["PATH"]) == ("as it was", path)
    assert os.environ.pop("ATP_TEST_ADDED") == "new"


def test_a_directory_that_is_gone(surroundings, tmp_path):
    """A handler may remove the one in which it leaves the process."""
    before = os.getcwd()
    own = tmp_path / "own"
    own.mkdir()
    os.chdir(own)
    own.rmdir()
    surroundings.restore()
    assert os.getcwd() == before


def test_signals_streams_and_recursion(surroundings):
    mask, limit = signal.pthread_sigmask(signal.SIG_BLOCK, ()), sys.getrecursionlimit()
    streams = sys.stdout, sys.stderr
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setrecursionlimit(limit + 1000)
    sys.stdout = sys.stderr = None
    surroundings.restore()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert sys.getrecursionlimit() == limit
    assert (sys.stdout, sys.stderr) == streams
