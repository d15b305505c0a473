"""A daemon that cannot start says why, and one whose database is silent starts all the same."""

import os
import re
import stat
import subprocess
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from atp import folders as filelock
from atp.daemon.options import Options
from atp.daemon.system.folders import DaemonFolders
from atp.exceptions import FolderRefused
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, NOBODY, as_nobody, child_environment, manage

from .proxy import Proxy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
of_a_server = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite has no link that could die"
)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folders(settings, monkeypatch):
    """Return a function that makes a daemon's folders, with scratch and locks at these places."""
    made = []

    def make(scratch, locks):
        settings.ATP = {"SCRATCH_DIR": str(scratch)}
        monkeypatch.setattr(type(get_store()), "lock_folder", locks)
        made.append(DaemonFolders())
        made[-1].make()
        return made[-1]

    yield make
    for each in made:
        each.close()
        each.remove()


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_folders_of_somebody_else(common, folders, mode):
    """The folder, its owner and this user are named; no traceback (G13).

    On SQLite the daemons' locks lie in one folder, which the first of them has made. In one that
    everybody can write, any user could remove the lock of a living daemon.
    """
    locks = common / "db.sqlite3-atpd"
    locks.mkdir()
    locks.chmod(mode)

    def refusal(scratch):
        try:
            folders(scratch, locks)
        except FolderRefused as error:
            return str(error)
        return "made"

    told = as_nobody(lambda: refusal(common))
    if mode == 0o755:
        assert str(locks) in told
        assert "it belongs to user root" in told
        told = as_nobody(lambda: refusal(locks))
        words = f"ATP['SCRATCH_DIR'], {locks}, cannot be written: it belongs to user root"
        assert told.startswith(words)
        assert "(mode 0755), and this is user " in told
    else:
        assert f"{locks}, can be written by every user: it belongs to user root (mode 1777)" in told
    assert list(locks.iterdir()) == []
    assert os.listdir(common) == ["db.sqlite3-atpd"], "what had been made is left"


def test_folders_that_cannot_be_made(tmp_path, folders):
    """A folder of the database that is not there is not made: a database there would be empty."""
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.touch()
    for scratch, locks, words in (
        (tmp_path, missing / "db.sqlite3-atpd", str(missing)),
        (tmp_path, file / "db.sqlite3-atpd", f"cannot be made: there is no folder {file}."),
        (tmp_path / "gone", tmp_path / "locks", f"['SCRATCH_DIR'], {tmp_path / 'gone'}, is not"),
    ):
        with pytest.raises(FolderRefused, match=re.escape(words)):
            folders(scratch, locks)
    assert not missing.exists()


@pytest.mark.parametrize(("mode", "after"), [(0o2770, 0o2770), (0o777, 0o775), (0o755, 0o755)])
def test_a_folder_of_locks_that_was_made_beforehand(tmp_path, folders, mode, after):
    """One for two users stays; nobody else can write to it, or open locks of another release."""
    locks = tmp_path / "db.sqlite3-atpd"
    locks.mkdir()
    locks.chmod(mode)
    if mode == 0o755:
        (locks / "old.lock").touch()
        (locks / "old.lock").chmod(0o644)
    made = folders(tmp_path, locks)
    assert mode_of(locks) == after
    if mode == 0o755:
        assert {mode_of(path) for path in locks.iterdir()} == {0o600}
    if mode == 0o2770:
        made.close()
        made.remove()
        assert list(locks.iterdir()) == []


@as_root
def test_a_group_that_shares_the_folder_may_try_each_others_locks(common, folders):
    """G1: else the Tasks of a dead daemon of another user would never be taken over."""
    locks = common / "db.sqlite3-atpd"
    locks.mkdir()
    os.chown(locks, -1, NOBODY)
    locks.chmod(0o2770)
    made = folders(common, locks)
    assert mode_of(locks / made.lock) == 0o660
    assert as_nobody(lambda: str(filelock.is_free(locks / made.lock))) == "False"
    made.close()
    assert as_nobody(lambda: str(filelock.is_free(locks / made.lock))) == "True"


def test_the_folder_of_locks_is_closed_to_other_users(tmp_path, folders):
    """Whatever the umask of the daemon."""
    locks = tmp_path / "db.sqlite3-atpd"
    before = os.umask(0)
    try:
        made = folders(tmp_path, locks)
    finally:
        os.umask(before)
    assert mode_of(locks) == 0o700
    assert mode_of(locks / made.lock) == 0o600
    made.close()
    made.remove()
    assert not locks.exists(), "the last one removes the folder"


@pytest.mark.parametrize(
    ("types", "exclude", "served"),
    [
        ((), (), ("dem.flow", "dem.hillshade", "mail.send", "post.send")),
        (("dem.*",), (), ("dem.flow", "dem.hillshade")),
        (("dem.*", "mail.send"), ("*.flow",), ("dem.hillshade", "mail.send", "post.send")),
        ((), ("dem.*",), ("mail.send", "post.send")),
        (("post.*",), (), ("mail.send", "post.send")),
        (("mail.*",), ("post.*",), ("mail.send",)),
        (("nothing",), (), ()),
    ],
)
def test_which_types_a_daemon_serves(types, exclude, served):
    """What a Type was called formerly goes with it, unless it is excluded."""
    declared = [
        SimpleNamespace(names=names)
        for names in (("dem.flow",), ("dem.hillshade",), ("mail.send", "post.send"))
    ]
    assert Options(types=types, exclude=exclude).served(declared) == served


def test_bad_arguments(transactional_db):
    for args, words in (
        (["--processes", "0"], "--processes"),
        (["--processes", "many"], "--processes"),
        (["--grace", "-1"], "--grace"),
        (["--max-memory-per-worker", "lots"], "--max-memory-per-worker"),
        (["--max-memory-per-worker", "5"], "Did you mean '5MiB'"),
        (["--type", "deamon.note"], "Did you mean 'daemon.note'?"),
        (["--log-format", "xml"], "invalid choice"),
    ):
        with pytest.raises(CommandError) as caught:
            call_command("atpd", "--drain", *args)
        assert words in str(caught.value), args


@pytest.fixture
def unmigrated(transactional_db):
    """The queue's database, with ATP's last migration taken for not applied."""
    name = max(name for app, name in MigrationLoader(connection).disk_migrations if app == "atp")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'atp' AND name = %s", [name])
        yield name
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('atp', %s, CURRENT_TIMESTAMP)",
            [name],
        )


def test_bad_settings_and_migrations_that_are_not_applied(unmigrated):
    """G13: a clear word, no traceback, nothing started; systemd sees that it has ended."""
    for environment, words in (
        ({"ATP_TEST_SETTINGS": '{"LAESE": 30}'}, re.escape("Did you mean 'LEASE'?")),
        ({}, rf"not applied \({unmigrated}\) in database .*: run manage.py migrate"),
    ):
        done = subprocess.run(
            manage("atpd"),
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 1
        assert re.search(words, done.stderr), done.stderr
        assert "Traceback" not in done.stderr


@of_a_server
def test_a_database_that_is_silent_at_the_start_and_at_the_end(atpd, record, flag):
    """G11: over a link that has died unnoticed it says so, starts, and goes on when it can.

    G10: stopping over such a link it says how long it still tries, and that it gave up.
    """
    with Proxy() as proxy:
        proxy.die_after_connecting(delay=0.0)
        daemon = atpd(
            *("--grace", "1"),
            processes=1,
            settings={"STATEMENT_TIMEOUT": 2.0, "KILL_AFTER": 6.0},
            environment={"DATABASE_URL": proxy.url},
        )
        daemon.wait_for_fact("database_silent")
        daemon.wait_for_fact("daemon_started")
        proxy.recover()
        assert types.note.enqueue(path=str(record)).wait(DEADLINE).state == "FINISHED"
        types.wait.enqueue(path=str(record), until=str(flag))
        record.wait_for("start")
        proxy.dead.clear()
        proxy.die_after_connecting(delay=0.0)
        assert proxy.dead.wait(DEADLINE)
        flag.touch()
        record.wait_for("end")
        daemon.signal()
        told = daemon.wait_for_fact("delivering")
        assert told["seconds"] > 0
        assert daemon.wait() == 1
        assert daemon.facts("undelivered")
