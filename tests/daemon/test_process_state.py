"""What a handler changed of its process is put back (G5)."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time

import pytest

from atp.daemon.worker.isolation.process_state import ProcessState


@pytest.fixture
def surroundings(monkeypatch):
    monkeypatch.setenv("ATP_TEST_KEPT", "as it was")
    found = ProcessState()
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


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (gc.disable, gc.isenabled),
        (lambda: logging.disable(logging.CRITICAL), lambda: logging.root.manager.disable),
        (lambda: socket.setdefaulttimeout(3), socket.getdefaulttimeout),
        (lambda: sys.settrace(_trace), sys.gettrace),
        (lambda: sys.setprofile(_trace), sys.getprofile),
        (lambda: threading.settrace(_trace), threading.gettrace),
        (lambda: threading.setprofile(_trace), threading.getprofile),
        (
            lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
            lambda: signal.getsignal(signal.SIGUSR1),
        ),
    ],
    ids=["gc", "logging", "socket", "trace", "profile", "threads", "profiles", "signals"],
)
def test_switches(surroundings, change, look):
    before = look()
    change()
    surroundings.restore()
    assert look() == before


def _trace(frame, event, argument):
    return None


def test_a_timer_whose_handler_is_put_back(surroundings):
    """Its signal would end the worker."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_PROF, 100)
    surroundings.restore()
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", None])
def test_local_time(monkeypatch, zone):
    """The effect of TZ is put back with the variable, even one that was not there."""
    if zone is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", zone)
    time.tzset()
    before = time.tzname
    surroundings = ProcessState()
    os.environ["TZ"] = "America/Caracas"
    time.tzset()
    surroundings.restore()
    assert (time.tzname, os.environ.get("TZ")) == (before, zone)
    monkeypatch.undo()
    time.tzset()
