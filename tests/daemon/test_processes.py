"""Processes and signals: who is killed, who is not, and what blocks nobody."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest
from django.db import connection

from atp import queue
from tests.app import tasks_daemon as types
from tests.environment import ROOT
from tests.helpers import DEADLINE, child_environment, manage, stays

from . import harness
from .harness import is_alive


def test_children_that_were_there_before_are_left_alone(atpd, record, tmp_path, monkeypatch):
    """A process that a start script left running beside atpd survives a worker's death (G5)."""
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


def test_log_that_nobody_reads(atpd, record, flag, tmp_path, monkeypatch):
    """A log that blocks, as a pipe to a pager or a stopped terminal, overlaps nothing (G3, G10)."""
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite the lease is a lock that the processes hold")
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


@pytest.mark.each_database
def test_one_database_by_two_paths(atpd, record, flag, tmp_path):
    """Daemons that reach one SQLite file by different links see each other's locks (G3)."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite's leases are file locks")
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


def test_more_workers_than_descriptors(transactional_db, record, flag):
    """The usual soft limit on open files is raised, as far as the hard one allows (G5)."""
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
    done = subprocess.run(
        [sys.executable, "-c", limited],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the dispatcher, pid" not in done.stderr  # it did not die in between


def test_fork_that_fails_for_a_moment(atpd, record, flag, tmp_path):
    """A limit on processes that is met for a moment ends no daemon and no task (G5)."""
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
