"""What a handler changed of its process is put back (G5)."""

import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings

import pytest

from atp.daemon.worker.isolation.entry import Entry
from atp.daemon.worker.isolation.process_state import ProcessState
from tests.helpers import child_environment


@pytest.fixture
def state(monkeypatch):
    monkeypatch.setenv("ATP_TEST_KEPT", "as it was")
    found = ProcessState()
    yield found
    found.restore()


def test_environment(state):
    """What was changed or removed comes back; what was added stays."""
    os.environ["ATP_TEST_KEPT"] = "other"
    path = os.environ.pop("PATH")
    os.environ["ATP_TEST_ADDED"] = "new"
    state.restore()
    assert (os.environ["ATP_TEST_KEPT"], os.environ["PATH"]) == ("as it was", path)
    assert os.environ.pop("ATP_TEST_ADDED") == "new"


@pytest.mark.parametrize("times", [1, 3])
def test_what_python_tells_of_is_put_back_at_once(state, tmp_path, times):
    """However short the attempts are that change it one after the other."""
    before = os.getcwd(), os.environ["PATH"], resource.getrlimit(resource.RLIMIT_NOFILE)
    for _ in range(times):
        os.chdir(tmp_path)
        os.environ["PATH"] = "nowhere"
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[2][1]))
        state.restore()
        after = os.getcwd(), os.environ["PATH"], resource.getrlimit(resource.RLIMIT_NOFILE)
        assert after == before


def test_a_directory_that_is_gone(state, tmp_path):
    """A handler may remove the one in which it leaves the process."""
    before = os.getcwd()
    own = tmp_path / "own"
    own.mkdir()
    os.chdir(own)
    own.rmdir()
    state.restore()
    assert os.getcwd() == before


def test_signals_streams_and_recursion(state):
    mask, limit = signal.pthread_sigmask(signal.SIG_BLOCK, ()), sys.getrecursionlimit()
    streams = sys.stdout, sys.stderr
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setrecursionlimit(limit + 1000)
    sys.stdout = sys.stderr = None
    state.restore()
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
def test_switches(state, change, look):
    before = look()
    change()
    state.restore()
    assert look() == before


def _trace(frame, event, argument):
    return None


def test_a_timer_whose_handler_is_put_back(state):
    """Its signal would end the worker. Where a handler has changed, all is compared."""
    state.restore()
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_PROF, 100)
    state.restore()
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


class _Incomparable:
    __hash__ = None

    def __init__(self, error):
        self._error = error

    def __eq__(self, other):
        raise self._error


@pytest.mark.parametrize(
    "change",
    [
        lambda: delattr(sys, "displayhook"),
        lambda: setattr(sys, "displayhook", _Incomparable(RuntimeError("no"))),
        lambda: setattr(sys, "displayhook", _Incomparable(SystemExit(3))),
    ],
    ids=["removed", "incomparable", "exits"],
)
@pytest.mark.parametrize("is_soon", [True, False])
def test_what_cannot_be_read_or_compared_is_put_back(state, change, is_soon):
    """It would end the worker, with the attempts that it has yet to run."""
    before = sys.displayhook
    if is_soon:  # after all was compared: then only a part is
        state.restore()
    change()
    assert state.restore() == ""
    assert sys.displayhook is before


@pytest.mark.parametrize("zone", ["Asia/Tokyo", None])
def test_local_time(monkeypatch, zone):
    """The effect of TZ is put back with the variable, even one that was not there."""
    if zone is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", zone)
    time.tzset()
    before = time.tzname
    state = ProcessState()
    os.environ["TZ"] = "America/Caracas"
    time.tzset()
    state.restore()
    assert (time.tzname, os.environ.get("TZ")) == (before, zone)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (
            lambda: warnings.simplefilter("error"),
            lambda: [*warnings.filters],
        ),
        (lambda: sys.path.insert(0, "/nowhere"), lambda: [*sys.path]),
        (
            lambda: resource.setrlimit(resource.RLIMIT_CPU, (10**6, resource.RLIM_INFINITY)),
            lambda: resource.getrlimit(resource.RLIMIT_CPU),
        ),
        (
            lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY)),
            lambda: resource.getrlimit(resource.RLIMIT_CORE),
        ),
        (lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 100), lambda: signal.getitimer(1)),
        (lambda: signal.signal(signal.SIGRTMIN, _trace), lambda: signal.getsignal(signal.SIGRTMIN)),
        (lambda: setattr(sys, "excepthook", _trace), lambda: sys.excepthook),
        (lambda: sys.setswitchinterval(1), sys.getswitchinterval),
        (faulthandler.disable, faulthandler.is_enabled),
        (tracemalloc.start, tracemalloc.is_tracing),
        (lambda: os.close(0), lambda: os.fstat(0).st_rdev),
    ],
    ids=[
        "filters",
        "path",
        "processor-time",
        "core",
        "virtual-timer",
        "real-time-signal",
        "hook",
        "switching",
        "faulthandler",
        "tracemalloc",
        "stdin",
    ],
)
def test_what_strikes_or_differs(monkeypatch, change, look):
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        state = ProcessState()
        before = look()
        change()
        assert state.restore() == ""
        assert look() == before
    finally:
        os.dup2(descriptor, 0)
        os.close(descriptor)
        os.close(null)


def test_the_timer_of_faulthandler_strikes_nobody():
    """In a process of its own, which it would end."""
    code = """if True:
        import faulthandler, time, django
        django.setup()
        from atp.daemon.worker.isolation.process_state import ProcessState
        state = ProcessState()
        faulthandler.dump_traceback_later(0.5, exit=True)
        state.restore()
        time.sleep(1)
        print("alive")
    """
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True
    )
    assert done.stdout == "alive\n", done.stderr


def test_what_cannot_be_put_back_is_named():
    def refuse(before):
        raise OSError("no")

    values = iter("ab")
    state = ProcessState([Entry("something", (lambda: next(values),), refuse)])
    assert state.restore() == "a handler changed for good: something (no)"
