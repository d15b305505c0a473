"""A daemon that cannot start says why, and one whose database is silent starts all the same."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys

import pytest
from django.db import connection

from atp.daemon.system.folders import DaemonFolders
from atp.exceptions import FolderRefused
from atp.store import filelock, get_store
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, NOBODY, as_nobody, child_environment, manage, wait_for

from . import harness
from .proxy import SlowProxy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def refusal():
    try:
        DaemonFolders().make()
    except FolderRefused as error:
        return str(error)
    return "made"


@as_root
def test_scratch_folder_of_somebody_else(common, settings):
    """The folder, its owner and this user are named; no traceback (G13)."""
    own = common / "scratch"
    own.mkdir(mode=0o755)
    settings.ATP = {"SCRATCH_DIR": str(own)}
    told = as_nobody(refusal)
    assert told.startswith(f"ATP['SCRATCH_DIR'], {own}, cannot be written: it belongs to user root")
    assert "(mode 0755), and this is user " in told


@as_root
def test_locks_of_somebody_else(common, settings, monkeypatch):
    """On SQLite the daemons' locks lie in one folder, which the first of them has made."""
    settings.ATP = {"SCRATCH_DIR": str(common)}
    locks = common / "db.sqlite3-atpd"
    locks.mkdir(mode=0o755)
    monkeypatch.setattr(type(get_store()), "lock_folder", locks)
    told = as_nobody(refusal)
    assert str(locks) in told
    assert "it belongs to user root" in told
    assert os.listdir(common) == ["db.sqlite3-atpd"], "what had been made is left"


def test_a_folder_of_the_database_that_is_not_there_is_not_made(tmp_path, settings, monkeypatch):
    """Its name is wrong: a database there would be empty."""
    settings.ATP = {"SCRATCH_DIR": str(tmp_path)}
    missing = tmp_path / "missing"
    monkeypatch.setattr(type(get_store()), "lock_folder", missing / "db.sqlite3-atpd")
    assert str(missing) in refusal()
    assert not missing.exists()


def test_a_folder_in_place_of_which_there_is_a_file(tmp_path, settings, monkeypatch):
    settings.ATP = {"SCRATCH_DIR": str(tmp_path)}
    (tmp_path / "file").touch()
    monkeypatch.setattr(type(get_store()), "lock_folder", tmp_path / "file" / "db.sqlite3-atpd")
    assert f"cannot be made: there is no folder {tmp_path / 'file'}." in refusal()


@pytest.fixture
def made_beforehand(settings, monkeypatch):
    """Make the folder of locks as an operator does: ``made_beforehand(folder, mode)``."""

    def make(folder, mode, group=-1):
        settings.ATP = {"SCRATCH_DIR": str(folder)}
        locks = folder / "db.sqlite3-atpd"
        locks.mkdir(exist_ok=True)
        os.chown(locks, -1, group)
        locks.chmod(mode)
        monkeypatch.setattr(type(get_store()), "lock_folder", locks)
        folders = DaemonFolders()
        folders.make()
        return locks, folders

    return make


def test_a_folder_of_locks_that_was_made_for_two_users_stays(tmp_path, made_beforehand):
    locks, folders = made_beforehand(tmp_path, 0o2770)
    folders.close()
    folders.remove()
    assert stat.S_IMODE(locks.stat().st_mode) == 0o2770
    assert list(locks.iterdir()) == []


def test_a_scratch_folder_that_has_gone(tmp_path, settings):
    settings.ATP = {"SCRATCH_DIR": str(tmp_path / "gone")}
    assert refusal() == f"ATP['SCRATCH_DIR'], {tmp_path / 'gone'}, is not there."


@as_root
def test_a_group_that_shares_the_folder_may_try_each_others_locks(common, made_beforehand):
    """G1: else the Tasks of a dead daemon of another user would never be taken over."""
    locks, folders = made_beforehand(common, 0o2770, group=NOBODY)
    try:
        assert stat.S_IMODE((locks / folders.lock).stat().st_mode) == 0o660
        assert as_nobody(lambda: str(filelock.is_free(locks / folders.lock))) == "False"
        folders.close()
        assert as_nobody(lambda: str(filelock.is_free(locks / folders.lock))) == "True"
    finally:
        folders.close()
        folders.remove()


def test_the_folder_of_locks_is_closed_to_other_users(tmp_path, settings, monkeypatch):
    """Whatever the umask of the daemon."""
    settings.ATP = {"SCRATCH_DIR": str(tmp_path)}
    locks = tmp_path / "db.sqlite3-atpd"
    monkeypatch.setattr(type(get_store()), "lock_folder", locks)
    before = os.umask(0)
    folders = DaemonFolders()
    try:
        folders.make()
        assert stat.S_IMODE(locks.stat().st_mode) == 0o700
        assert stat.S_IMODE((locks / folders.lock).stat().st_mode) == 0o600
    finally:
        os.umask(before)
        folders.close()
        folders.remove()
    assert not locks.exists(), "the last one removes the folder"


def test_our_folder_that_everybody_can_write_is_closed(tmp_path, made_beforehand):
    locks, folders = made_beforehand(tmp_path, 0o777)
    folders.close()
    assert stat.S_IMODE(locks.stat().st_mode) == 0o775


@as_root
def test_a_folder_of_another_user_that_everybody_can_write_is_refused(
    common, settings, monkeypatch
):
    """Any user could remove the lock of a living daemon there."""
    settings.ATP = {"SCRATCH_DIR": str(common)}
    locks = common / "db.sqlite3-atpd"
    locks.mkdir()
    locks.chmod(0o1777)
    monkeypatch.setattr(type(get_store()), "lock_folder", locks)
    told = as_nobody(refusal)
    assert f"{locks}, can be written by every user: it belongs to user root (mode 1777)" in told
    assert list(locks.iterdir()) == []


def test_locks_that_strangers_can_open_are_closed_to_them(tmp_path, made_beforehand):
    """They may be left from another release."""
    locks = tmp_path / "db.sqlite3-atpd"
    locks.mkdir(mode=0o755)
    for name in ("old.lock", "old.ear"):
        (locks / name).touch()
        (locks / name).chmod(0o644)
    _, folders = made_beforehand(tmp_path, 0o755)
    folders.close()
    assert {stat.S_IMODE(path.stat().st_mode) for path in locks.iterdir()} == {0o600}


@pytest.fixture
def unmigrated(transactional_db):
    """The queue's database, with ATP's last migration taken for not applied."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(name) FROM django_migrations WHERE app = 'atp'",
        )
        [name] = cursor.fetchone()
        cursor.execute("DELETE FROM django_migrations WHERE app = 'atp' AND name = %s", [name])
        yield name
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('atp', %s, CURRENT_TIMESTAMP)",
            [name],
        )


def test_migrations_that_are_not_applied(unmigrated):
    """G13: as with tables that are missing, it says so, and ends; systemd sees that."""
    done = subprocess.run(
        manage("atpd"),
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(
        rf"not applied \({unmigrated}\) in database .*: run manage.py migrate", done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_database_that_is_silent_at_the_start(atpd, record, monkeypatch):
    """G11: over a link that has died unnoticed it says so, starts, and goes on when it can."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no link that could die")
    with SlowProxy() as proxy:
        own = child_environment(DATABASE_URL=proxy.url)
        monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
        proxy.die_after_connecting(delay=0.0)
        daemon = atpd(processes=1, settings={"STATEMENT_TIMEOUT": 2.0, "KILL_AFTER": 6.0})
        daemon.wait_for_fact("database_silent")
        daemon.wait_for_fact("daemon_started")
        proxy.recover()
        assert types.note.enqueue(path=str(record)).wait(DEADLINE).state == "FINISHED"


def test_stopping_over_a_silent_link_is_told(atpd, record, flag, monkeypatch):
    """G10, G11: how long it still tries, and that it gave up."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no link that could die")
    with SlowProxy() as proxy:
        own = child_environment(DATABASE_URL=proxy.url)
        monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
        types.wait.enqueue(path=str(record), until=str(flag))
        daemon = atpd("--grace", "1", processes=1)
        record.wait_for("start")
        proxy.die_after_connecting(delay=0.0)
        assert proxy.dead.wait(DEADLINE)
        flag.touch()
        record.wait_for("end")
        daemon.signal()
        told = daemon.wait_for_fact("delivering")
        assert told["seconds"] > 0
        assert daemon.wait() == 1
        assert daemon.facts("undelivered")


def test_supervisor_that_is_killed_hands_over_at_once(atpd, record, flag):
    """G1, G3: its dispatcher has killed all that ran, so nobody waits for the lease."""
    instance = types.wait.enqueue(path=str(record), until=str(flag))
    lasting = {"LEASE": 600.0, "KILL_AFTER": 590.0}
    daemon = atpd(processes=1, settings=lasting)
    record.wait_for("start")
    wait_for(lambda: instance.refresh_from_db() or instance.state == "RUNNING")
    family = daemon.family()
    os.kill(daemon.pid, signal.SIGKILL)
    wait_for(lambda: not any(harness.is_alive(*member) for member in family), what="its end")
    if connection.vendor == "postgresql":
        instance.refresh_from_db()
        assert (instance.state, instance.restarts) == ("ACCEPTED", 1)
    atpd(processes=1, settings=lasting)
    record.wait_for("start", 2)
    flag.touch()
    assert instance.wait(DEADLINE).state == "FINISHED"


@pytest.fixture
def stranger(atpd):
    """Lock all locks of the daemons that are there, if this is possible, as another user.

    ``stranger(folder)`` returns how many the stranger has locked; it keeps them.
    """
    started = []

    def lock_all(folder):
        process = subprocess.Popen(
            [sys.executable, "-c", LOCK_ALL, str(NOBODY)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return int(process.stdout.readline())

    yield lock_all
    for process in started:
        process.communicate(timeout=DEADLINE)


# It is in the folder already: the folders above it may be closed to other users.
LOCK_ALL = """
import fcntl, os, sys, threading
names, locked = os.listdir("."), []
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
for name in names:
    try:
        locked.append(open(name))
    except PermissionError:
        continue
    # The lock is still the daemon's; it becomes the stranger's as soon as the daemon dies.
    threading.Thread(target=fcntl.flock, args=(locked[-1], fcntl.LOCK_EX), daemon=True).start()
print(len(locked), flush=True)
sys.stdin.read()
"""


@as_root
def test_another_user_cannot_keep_a_dead_daemon_alive(atpd, record, flag, stranger):
    """Another daemon takes its task over in time."""
    if connection.vendor != "sqlite":
        pytest.skip("only there leases are locks")
    folder = get_store().lock_folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)  # as other releases have made it
    instance = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=1)
    record.wait_for("start")
    locked = stranger(folder)
    daemon.destroy()
    atpd(processes=1)
    record.wait_for("start", 2)
    flag.touch()
    assert instance.wait(DEADLINE).state == "FINISHED"
    assert locked == 0


def test_a_folder_of_locks_does_not_stay_behind(atpd):
    """When its last daemon has ended in order."""
    if connection.vendor != "sqlite":
        pytest.skip("only there leases are locks")
    folder = get_store().lock_folder
    # Other tests have killed daemons.
    shutil.rmtree(folder, ignore_errors=True)
    daemon = atpd(processes=1).ready()
    assert folder.is_dir()
    assert daemon.stop() == 0
    assert not folder.exists()
