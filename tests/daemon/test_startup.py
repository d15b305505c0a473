"""A daemon that cannot start says why, and one whose database is silent starts all the same."""

import json
import os
import re
import signal
import stat
import time
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader

from atp import folders as filelock
from atp import queue
from atp.exceptions import FolderRefused
from atp.models import Instance
from atp.states import State
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.environment import ROOT
from tests.helpers import DEADLINE, NOBODY, as_nobody, manage, run_python, wait_for

from . import inside
from .proxy import Proxy
from .scenario import on_postgresql, run

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folders(settings, monkeypatch):
    """Return a function that makes a daemon's folders, with scratch and locks at these places."""
    made = []

    def make(scratch, locks):
        settings.ATP = {"SCRATCH_DIR": str(scratch)}
        monkeypatch.setattr(type(get_store()), "lock_folder", locks)
        made.append(inside.DaemonFolders())
        made[-1].make()
        return made[-1]

    yield make
    for each in made:
        each.close()
        each.remove()


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_folders_of_another_user_are_refused_with_their_owner(common, folders, mode):
    """G13. In a folder that everybody can write, any user could remove a living daemon's lock."""
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


def test_folders_that_cannot_be_made_are_refused(tmp_path, folders):
    """The database's own folder is not made: a database there would be empty."""
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


@pytest.mark.parametrize(
    ("mode", "after"), [(None, 0o700), (0o2770, 0o2770), (0o777, 0o775), (0o755, 0o755)]
)
def test_lock_folder_is_closed_to_other_users(tmp_path, folders, mode, after):
    """Whatever the umask. An existing folder stays; locks of an older release are closed, too."""
    locks = tmp_path / "db.sqlite3-atpd"
    if mode is not None:
        locks.mkdir()
        locks.chmod(mode)
    if mode == 0o755:
        (locks / "old.lock").touch()
        (locks / "old.lock").chmod(0o644)
    before = os.umask(0)
    try:
        made = folders(tmp_path, locks)
    finally:
        os.umask(before)
    assert mode_of(locks) == after
    if mode in (None, 0o755):
        assert {mode_of(path) for path in locks.iterdir()} == {0o600}
    made.close()
    made.remove()
    assert not (locks / made.lock).exists()
    assert locks.exists() == (mode in (0o2770, 0o755)), "the last one removes the folder"


@as_root
def test_users_of_a_group_can_try_each_others_locks(common, folders):
    """G1: else the Tasks of another user's dead daemon would never be rescued."""
    locks = common / "db.sqlite3-atpd"
    locks.mkdir()
    os.chown(locks, -1, NOBODY)
    locks.chmod(0o2770)
    made = folders(common, locks)
    assert mode_of(locks / made.lock) == 0o660
    assert as_nobody(lambda: str(filelock.is_free(locks / made.lock))) == "False"
    made.close()
    assert as_nobody(lambda: str(filelock.is_free(locks / made.lock))) == "True"


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
def test_type_and_exclude_select_the_served_types(types, exclude, served):
    """A former name of a Type goes with it, unless it is excluded."""
    declared = [
        SimpleNamespace(names=names, needs=(), resources=(), executor="", concurrency=None)
        for names in (("dem.flow",), ("dem.hillshade",), ("mail.send", "post.send"))
    ]
    assert inside.Options(types=types, exclude=exclude).served(declared) == served


def test_bad_arguments_are_refused(transactional_db, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    for args, words in (
        (["--processes", "0"], "--processes"),
        (["--processes", "many"], "--processes"),
        (["--grace", "-1"], "--grace"),
        (["--max-memory-per-worker", "lots"], "--max-memory-per-worker"),
        (["--max-memory-per-worker", "5"], "Did you mean '5MiB'"),
        (["--type", "deamon.note"], "Did you mean 'daemon.note'?"),
        (["--log-format", "xml"], "invalid choice"),
        (["--label", "disk"], "'disk' is no label: a label has a name and a value"),
        (["--label", "disk=fast", "--label", "disk=slow"], "--label disk has two values"),
        (["--label", "5disk=fast"], "'5disk' is no name"),
        (["--capacity", "gpu=two"], "gpu='two': an amount is a whole number"),
        (["--capacity", "gpu=0"], "gpu=0: an amount is a whole number"),
        (["--capacity", "memory=64XB"], "'64XB' is not a size"),
        (["--capacity", "gpu=1,gpu=2"], "'gpu' is given twice"),
        (["--capacity", "gpu=2"], "gpu=2, but CUDA_VISIBLE_DEVICES names 1: 3"),
        (["--executor", "engine", "--capacity", "gpu=1"], "--capacity is for what attempts take"),
        (["--executor", "engine", "-p", "4"], "is its SLOTS in the setting EXECUTORS"),
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


@pytest.mark.slow
def test_bad_settings_and_missing_migrations_are_named_and_nothing_starts(unmigrated):
    """G13."""
    for environment, words in (
        ({"ATP_TEST_SETTINGS": '{"LAESE": 30}'}, re.escape("Did you mean 'LEASE'?")),
        ({}, rf"not applied \({unmigrated}\) in database .*: run manage.py migrate"),
    ):
        done = run(*manage("atpd"), **environment)
        assert done.returncode == 1
        assert re.search(words, done.stderr), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@on_postgresql
def test_daemon_starts_and_stops_while_its_database_is_silent(atpd, record, flag):
    """G10, G11: it says so, goes on when it can, and says that it gave up at its stop."""
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


# ``call_command("atpd", drain=True)``: a daemon in a process that goes on afterwards


# What a process is like, before and after. Python opens some things only once.
SCRIPT = """
import ctypes, django, gc, json, logging, os, resource, signal
django.setup()
from django.core.management import call_command
from django.db import connections

def facts():
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(adopts), 0, 0, 0)
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    log = logging.getLogger("atp")
    return {
        "handlers": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "wakeup": wakeup,
        "adopts": adopts.value,
        "name": open("/proc/self/comm").read(),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "frozen": gc.get_freeze_count(),
        "log": [len(log.handlers), log.propagate, log.level],
    }

connections.close_all()
call_command("check")
seen = [facts()]
for _ in range(2):
    call_command("atpd", drain=True, processes=1)
    seen.append(facts())
print(json.dumps(seen))
"""


def test_drain_leaves_the_calling_process_as_it_was(transactional_db, tmp_path):
    """Twice in a row."""
    queue.register_all()
    instance = types.note.enqueue(path=str(tmp_path / "record"))
    before, once, twice = json.loads(run_python(SCRIPT).splitlines()[-1])
    assert once == before
    assert twice == before
    instance.refresh_from_db()
    assert instance.state == State.FINISHED


def test_drain_is_refused_inside_a_transaction(transactional_db, tmp_path):
    """As in a TestCase: it would not see what is enqueued there."""
    queue.register_all()
    with transaction.atomic():
        types.note.enqueue(path=str(tmp_path / "record"))
        with pytest.raises(CommandError, match="TransactionTestCase"):
            call_command("atpd", drain=True, processes=1)
        assert Instance.objects.live().count() == 1


# ``--reload``: the daemon starts again after a change of the code


@pytest.fixture
def own_modules(tmp_path):
    """The environment of daemons that find the modules in a folder first."""
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


@pytest.mark.slow
def test_changed_code_restarts_the_daemon(atpd, tmp_path, own_modules):
    """The tasks of an app, which only this daemon has."""
    (tmp_path / "own_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'own_app']\n"
    )
    app = tmp_path / "own_app"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "tasks.py").write_text("")
    environment = own_modules | {"DJANGO_SETTINGS_MODULE": "own_settings"}
    daemon = atpd("--reload", processes=1, environment=environment).ready()
    first = daemon.workers()
    (app / "tasks.py").write_text("# changed\n")
    daemon.wait_for_fact("daemon_started", 2)
    wait_for(lambda: daemon.workers() and not set(daemon.workers()) & set(first))
    assert types.noop.enqueue().wait(DEADLINE).state == "FINISHED"
    assert daemon.stop() == 0


@pytest.mark.long
def test_reload_waits_for_code_that_can_be_loaded(atpd, record, flag, tmp_path, own_modules):
    """G10: Ctrl-C while it waits ends it."""
    module = tmp_path / "sitecustomize.py"
    module.write_text("")
    daemon = atpd("--reload", "--grace", "3", processes=1, environment=own_modules).ready()
    module.write_text("raise SystemExit('half a thought')\n")
    told = daemon.wait_for_fact("not_reloading")
    assert "half a thought" in told["message"]
    module.write_text("# mended\n")
    daemon.wait_for_fact("daemon_started", 2)
    types.stubborn.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_for(lambda: time.time() - module.stat().st_mtime > 0.01)
    module.write_text("# changed again\n")
    daemon.wait_for_fact("reloading", 2)
    daemon.signal(signal.SIGINT)
    daemon.wait()
    assert len(daemon.facts("daemon_started")) == 2
