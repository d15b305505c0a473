"""What an attempt leaves: its process as it was, and nothing that runs or counts (G3, G5)."""

import faulthandler
import gc
import logging
import logging.config
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
from contextlib import contextmanager
from multiprocessing import resource_tracker

import pytest

from atp import messages
from tests.environment import ROOT

from ..nonsense import is_made_by
from . import inside
from .harness import is_alive
from .scenario import run

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def state(monkeypatch):
    monkeypatch.setenv("ATP_TEST_KEPT", "as it was")
    found = inside.ProcessState()
    yield found
    found.restore()


def test_docs_list_what_is_restored():

    def when(entry):
        if entry.is_slow:
            return " (now and then)"
        return " (where Python tells of it, and now and then)" if entry.told else ""

    listed = "\n".join(f"- {each.name}{when(each)}" for each in inside.ENTRIES)
    assert f"\n\n{listed}\n\n" in (ROOT / "docs" / "bad-tasks.md").read_text()


def test_environment_and_a_removed_directory_are_restored(state, tmp_path):
    """Changed or removed variables come back; added ones stay."""
    os.environ["ATP_TEST_KEPT"] = "other"
    path = os.environ.pop("PATH")
    os.environ["ATP_TEST_ADDED"] = "new"
    before, own = os.getcwd(), tmp_path / "own"
    own.mkdir()
    os.chdir(own)
    own.rmdir()
    state.restore()
    assert (os.environ["ATP_TEST_KEPT"], os.environ["PATH"]) == ("as it was", path)
    assert os.environ.pop("ATP_TEST_ADDED") == "new"
    assert os.getcwd() == before


def _trace(frame, event, argument):
    return None


class _Louder(logging.Logger):
    """A class of loggers, as a library sets one."""


def _umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


SIGNALS = signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN
# How a handler changes something, and how that is seen.
CHANGES = {
    "mask": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1}),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    ),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "streams": (
        lambda: (setattr(sys, "stdout", None), setattr(sys, "stderr", None)),
        lambda: (sys.stdout, sys.stderr),
    ),
    "gc": (gc.disable, gc.isenabled),
    "umask": (lambda: os.umask(0o777), _umask),
    "logging": (
        lambda: logging.disable(logging.CRITICAL),
        lambda: logging.root.manager.disable,
    ),
    "records": (lambda: logging.setLogRecordFactory(_trace), logging.getLogRecordFactory),
    "loggers": (lambda: logging.setLoggerClass(_Louder), logging.getLoggerClass),
    "loggers-of-manager": (
        lambda: logging.root.manager.setLoggerClass(_Louder),
        lambda: logging.root.manager.loggerClass,
    ),
    "socket": (lambda: socket.setdefaulttimeout(3), socket.getdefaulttimeout),
    "trace": (lambda: sys.settrace(_trace), sys.gettrace),
    "profile": (lambda: sys.setprofile(_trace), sys.getprofile),
    "threads": (lambda: threading.settrace(_trace), threading.gettrace),
    "profiles": (lambda: threading.setprofile(_trace), threading.getprofile),
    "signals": (
        lambda: [signal.signal(number, signal.SIG_IGN) for number in SIGNALS],
        lambda: [signal.getsignal(number) for number in SIGNALS],
    ),
    "filters": (lambda: warnings.simplefilter("error"), lambda: [*warnings.filters]),
    "path": (lambda: sys.path.insert(0, "/nowhere"), lambda: [*sys.path]),
    "processor-time": (
        lambda: resource.setrlimit(resource.RLIMIT_CPU, (10**6, resource.RLIM_INFINITY)),
        lambda: resource.getrlimit(resource.RLIMIT_CPU),
    ),
    "virtual-timer": (
        lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 100),
        lambda: signal.getitimer(signal.ITIMER_VIRTUAL),
    ),
    "hook": (lambda: setattr(sys, "excepthook", _trace), lambda: sys.excepthook),
    "switching": (lambda: sys.setswitchinterval(1), sys.getswitchinterval),
    "faulthandler": (faulthandler.disable, faulthandler.is_enabled),
    "tracemalloc": (tracemalloc.start, tracemalloc.is_tracing),
    "stdin": (lambda: os.close(0), lambda: os.fstat(0).st_rdev),
}


@pytest.mark.parametrize(("change", "look"), CHANGES.values(), ids=CHANGES)
def test_process_state_is_restored(change, look):
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        state = inside.ProcessState()
        before = look()
        change()
        assert state.restore() == ""
        assert look() == before
    finally:
        os.dup2(descriptor, 0)
        os.close(descriptor)
        os.close(null)


def test_logger_that_an_attempt_has_created_is_enabled_again(state):
    """A configuration disables all loggers that it does not name."""
    logger = logging.getLogger("tests.created_by_an_attempt")
    state.restore()
    logging.config.dictConfig({"version": 1})
    assert logger.disabled
    state.restore()
    assert not logger.disabled


def test_timer_is_stopped_if_its_signal_handler_is_restored(state):
    """Its signal would end the worker."""
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


@pytest.mark.parametrize("error", [None, RuntimeError("no"), SystemExit(3)])
@pytest.mark.parametrize("is_soon", [True, False])
def test_state_that_cannot_be_read_or_compared_is_restored(state, error, is_soon):
    before = sys.displayhook
    if is_soon:  # after all was compared: then only a part is
        state.restore()
    if error is None:
        del sys.displayhook
    else:
        sys.displayhook = _Incomparable(error)
    assert state.restore() == ""
    assert sys.displayhook is before


@pytest.mark.parametrize("zone", ["Asia/Tokyo", None])
def test_local_time_zone_is_restored(monkeypatch, zone):
    """Also if TZ was not set before."""
    if zone is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", zone)
    time.tzset()
    before = time.tzname
    state = inside.ProcessState()
    os.environ["TZ"] = "America/Caracas"
    time.tzset()
    state.restore()
    assert (time.tzname, os.environ.get("TZ")) == (before, zone)
    monkeypatch.undo()
    time.tzset()


def test_faulthandler_timer_is_cancelled():
    """In a process of its own, which it would end."""
    code = """if True:
        import faulthandler, time, django
        django.setup()
        from atp.daemon.worker.isolation import ProcessState
        state = ProcessState()
        faulthandler.dump_traceback_later(0.5, exit=True)
        state.restore()
        time.sleep(1)
        print("alive")
    """
    done = run(sys.executable, "-c", code)
    assert done.stdout == "alive\n", done.stderr


def test_state_that_cannot_be_restored_is_named():
    def refuse(before):
        raise OSError("no")

    values = iter("ab")
    state = inside.ProcessState([inside.Entry("something", (lambda: next(values),), refuse)])
    assert state.restore() == "a handler changed for good: something (no)"


# What an attempt leaves running is found and ended, and nothing else


@pytest.fixture
def started():
    """Start processes that would go on for long; those that are left are ended."""
    running = []

    def start(*command, env=None):
        running.append(subprocess.Popen(command or ("sleep", "300"), env=env))
        return running[-1].pid

    yield start
    for each in running:
        each.kill()
        each.wait()


@on_linux
@pytest.mark.parametrize("by_others", [False, True])
def test_zombies_are_reaped(started, monkeypatch, by_others):
    """A thread of a library, as that of asyncio, may wait for its process at the same time."""

    def gone(pid, options):
        raise ChildProcessError

    leftovers = inside.Leftovers()
    dead = started("true")
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    with monkeypatch.context() as patch:
        if by_others:
            patch.setattr(inside.leftovers.os, "waitpid", gone)
        leftovers.end()
    if not by_others:
        with pytest.raises(ChildProcessError):
            os.waitpid(dead, os.WNOHANG)


@on_linux
def test_resource_tracker_of_multiprocessing_is_left_alone():
    leftovers = inside.Leftovers()
    resource_tracker.ensure_running()
    try:
        assert leftovers.end() == ""
        assert is_alive(resource_tracker._resource_tracker._pid)
    finally:
        resource_tracker._resource_tracker._stop()


@on_linux
def test_process_that_cannot_be_killed_is_an_error(started, monkeypatch):
    monkeypatch.setattr(inside.leftovers.descendants, "kill", lambda pid, number=0: None)
    monkeypatch.setattr(inside.leftovers.descendants, "PATIENCE", 0.05)
    leftovers = inside.Leftovers()
    started()
    with pytest.raises(inside.Unkillable) as caught:
        leftovers.end()
    words = "1 process that it left behind could not be ended"
    assert is_made_by(str(caught.value), messages.processes_left_behind, words)


@on_linux
def test_only_programs_of_a_dead_daemon_of_this_host_are_found(started):
    gone = subprocess.Popen(["true"])
    gone.wait()
    own = inside.abandoned.mark("atp")
    _, namespace, _, rest = own.split("/", 3)
    for mark, is_found in (
        (own, False),
        (f"atp/{namespace}/{gone.pid}/{rest}", True),
        (f"atp/pid:[1]/{gone.pid}/{rest}", False),
    ):
        program = started("sleep", "300", env=os.environ | {inside.MARK: mark})
        assert (program in inside.abandoned._found()) == is_found, mark


# What is counted of memory

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
def holder(size, copies):
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


@on_linux
def test_memory_counts_descendants_and_shared_pages_once(monkeypatch):
    """What was in use before the attempt does not count."""
    monkeypatch.setattr(messages, "too_much_memory", lambda *facts: facts)

    def excesses(pid, allowed, before=0):
        running = inside.Running(1, 1, 0.0, 0.0, allowed * MIB, before)
        return list(inside.MemoryWatch().excesses({pid: running}))

    with holder(60, copies=0) as pid:
        assert excesses(pid, allowed=20, before=inside.memory.in_use(pid)) == []
    with holder(60, copies=3) as pid:
        assert excesses(pid, allowed=20, before=inside.memory.in_use(pid)) == []
        assert excesses(pid, allowed=130) == []
        [(_, why)] = excesses(pid, allowed=40)
    assert why[1] == 3
