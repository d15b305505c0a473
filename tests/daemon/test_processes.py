"""Processes and signals: who is killed, who is not, and what blocks nobody."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec

import psutil
import pytest
from django.db import connection

from atp import queue
from atp.states import State
from tests.app import tasks_daemon as types
from tests.app import tasks_pools
from tests.app.tasks_poison import keeps
from tests.environment import ROOT
from tests.helpers import DEADLINE, child_environment, manage, stays, wait_for

from . import harness
from .harness import is_alive
from .scenario import on_postgresql, on_sqlite, run


def test_process_started_before_the_daemon_survives_it(atpd, record, tmp_path, monkeypatch):
    """G5: as one that a start script has left running."""
    number = tmp_path / "pid"
    start = f'sleep 120 & echo $! > {number}; exec "$@"'
    monkeypatch.setattr(harness, "manage", lambda *args: ["sh", "-c", start, "sh", *manage(*args)])
    instance = types.crash_once.enqueue(path=str(record))
    daemon = atpd(processes=1).ready()
    beside = int(number.read_text())
    try:
        instance.wait(DEADLINE)
        assert is_alive(beside)
        assert daemon.stop() == 0
        assert is_alive(beside)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(beside, signal.SIGKILL)


@on_postgresql
def test_blocked_log_lets_nothing_run_twice(atpd, record, flag, tmp_path, monkeypatch):
    """G3, G10: as a pipe to a pager, or a stopped terminal."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    shell = ["sh", "-c", f'exec "$@" > {pipe} 2>&1', "sh"]
    try:
        with monkeypatch.context() as patched:
            patched.setattr(harness, "manage", lambda *args: [*shell, *manage(*args)])
            first = atpd("--grace", "0", processes=2)
        types.stubborn.enqueue(path=str(record), until=str(flag))
        [line] = record.wait_for("start")
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        # Something to log.
        for instance in types.noop.enqueue_many({} for _ in range(20)):
            instance.wait(DEADLINE)
        atpd(processes=1)
        # A lease is 8 s. Nobody starts it again while it still runs here.
        stays(lambda: len(record.lines("start")) == 1 or not is_alive(line["pid"]), 12)
        first.signal()
        first.wait(DEADLINE)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.slow
@pytest.mark.each_database
@on_sqlite
def test_daemons_on_two_paths_to_one_database_see_each_others_locks(atpd, record, flag, tmp_path):
    """G3."""
    release = tmp_path / "current"

    def deploy(name):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "db.sqlite3").symlink_to(connection.settings_dict["NAME"])
        release.unlink(missing_ok=True)
        release.symlink_to(folder)

    environment = {"DATABASE_URL": f"sqlite:///{release}/db.sqlite3"}
    deploy("one")
    instance = types.stubborn.enqueue(path=str(record), until=str(flag))
    atpd(processes=1, environment=environment)
    record.wait_for("start")
    deploy("two")
    other = atpd(processes=1, environment=environment).ready()
    stays(lambda: not other.facts("daemons_lost"), 3)
    assert len(record.lines("start")) == 1
    flag.touch()
    assert instance.wait(DEADLINE).attempt == 1


def test_soft_limit_on_open_files_is_raised(transactional_db, record, flag):
    """G5: as far as the hard limit allows."""
    queue.register_all()
    types.wait.enqueue(path=str(record), until=str(flag))  # until all workers have started
    threading.Timer(2, flag.touch).start()
    command = manage("atpd", "--drain", "--processes", "40")
    limited = (
        "import os, resource\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        f"os.execv({command[0]!r}, {command!r})\n"
    )
    done = run(sys.executable, "-c", limited)
    assert done.returncode == 0, done.stderr
    assert "the dispatcher, pid" not in done.stderr  # it did not die in between


def test_fork_that_fails_for_a_moment_ends_no_daemon_and_no_task(atpd, record, flag, tmp_path):
    """G5."""
    full = tmp_path / "full"
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os\n"
        "fork = os.fork\n"
        "def fork_unless_full():\n"
        f"    if os.path.exists({str(full)!r}):\n"
        "        raise BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "    return fork()\n"
        "os.fork = fork_unless_full\n"
    )
    instance = types.wait.enqueue(path=str(record), until=str(flag))
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    daemon = atpd(processes=2, environment=environment).ready(workers=2)
    [line] = record.wait_for("start")
    [idle] = set(daemon.workers()) - {line["pid"]}
    full.touch()
    os.kill(idle, signal.SIGKILL)
    daemon.wait_for_fact("worker_died")
    daemon.wait_for_fact("cannot_fork", 2)
    full.unlink()
    flag.touch()
    assert instance.wait(DEADLINE).attempt == 1
    daemon.ready(workers=2)
    assert daemon.stop() == 0


# A daemon that is the first process of a container: here, of a PID namespace


UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def _may_unshare():
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


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


@pytest.mark.processes
@pytest.mark.skipif(not _may_unshare(), reason="no PID namespaces can be made here")
def test_daemon_as_process_1_reaps_zombies_and_stops_on_sigterm(container, record):
    """G10: for process 1 the kernel has no default actions of signals."""
    first, outside = container
    keeps.enqueue(path=str(record.path)).wait(DEADLINE)
    [worker] = [p for p in first.children() if p.name().startswith("atpd-worker")]
    left = worker.children(recursive=True)
    assert len(left) == 3
    worker.kill()
    wait_for(lambda: not any(psutil.pid_exists(p.pid) for p in [worker, *left]), what="their end")
    first.send_signal(signal.SIGTERM)
    assert outside.wait(DEADLINE) == 0


# Libraries that keep pools of processes


COUNT = 4
USUAL = [
    ("executor", "fork"),
    ("kept_executor", "fork"),
    ("left_executor", "fork"),
    ("left_pool", "fork"),
    ("shared_memory", "spawn"),
]
# Other libraries, and other ways to start a process.
MORE = [
    *(("joblib", None), ("joblib_arrays", None)),
    *(("executor", "spawn"), ("executor", "forkserver"), ("kept_executor", "spawn")),
    *(("pool", "fork"), ("pool", "spawn"), ("pool", "forkserver"), ("kept_pool", "fork")),
    *(("dask", "threads"), ("dask", "processes")),
]


def is_installed(library):
    # Not imported here: dask would look at the odd classes that other tests have left.
    package = library.partition("_")[0]
    return package not in ("joblib", "dask") or find_spec(package) is not None


def shared():
    """Return the names of what libraries have in shared memory."""
    names = os.listdir("/dev/shm")
    return {name for name in names if name.startswith(("psm_", "sem.", "joblib", "loky", "pym-"))}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/shm")
@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [USUAL, pytest.param(MORE, marks=pytest.mark.long)], ids=["usual", "more"]
)
def test_each_attempt_can_use_a_pool_of_processes(atpd, cases):
    before = shared()
    daemon = atpd(processes=1).ready()
    [worker] = daemon.workers()
    for library, how in cases:
        if is_installed(library):
            inputs = {"library": library, "how": how}
            for instance in tasks_pools.use.enqueue_many([inputs] * COUNT):
                told = [inputs, *(line.message for line in instance.wait(60).log.all())]
                assert instance.state == State.FINISHED, told
    assert daemon.workers() == [worker]
    assert daemon.stop() == 0
    wait_for(lambda: shared() <= before, what="an empty /dev/shm")
    assert not daemon.facts("worker_died")
