"""The store for SQLite: listener. A hint that there may be something to claim (G15)."""

import contextlib
import os
import sqlite3
import time

import pytest
from django.db import connection, transaction

from ..helpers import DEADLINE, Thread, wait_for
from .broken import execute
from .internals import Watch
from .internals import sqlite_listener as listener
from .world import only_sqlite

pytestmark = [only_sqlite, pytest.mark.django_db(transaction=True)]
# Long enough for what is to come; what is not to come is waited for SHORTLY.
SHORTLY = 0.1


@pytest.fixture
def ear(world):
    """A listener that has said its first yes."""
    with contextlib.closing(world.store.listener()) as ear:
        assert ear.wait(0)
        yield ear


def begin_to_wait(ear):
    thread = Thread(ear.wait, DEADLINE)
    wait_for(ear._in_use.locked, what="the wait")
    return thread


@pytest.fixture(params=["inotify", "polling"])
def either_ear(request, world, monkeypatch):
    """A listener as on Linux, and as elsewhere."""
    if request.param == "polling":
        monkeypatch.setattr("ctypes.CDLL", lambda *args, **kwargs: object())
        with pytest.raises(OSError, match="Linux"):
            Watch([])
    return request.getfixturevalue("ear")


def test_a_commit_is_told_once_and_ends_a_wait(world, either_ear):
    ear = either_ear
    assert not ear.wait(SHORTLY)
    world.enqueue()
    assert ear.wait(DEADLINE)
    assert not ear.wait(SHORTLY)
    waiting = begin_to_wait(ear)
    world.enqueue()
    assert waiting.result()


def test_what_is_not_committed_is_not_told(world, ear):
    """The log is written to before, when a transaction is large."""
    with transaction.atomic():
        world.enqueue(300)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size")
            [size] = cursor.fetchone()
            cursor.execute("PRAGMA cache_size = 10")
            world.enqueue(300)
            cursor.execute(f"PRAGMA cache_size = {size}")
        assert not Thread(ear.wait, SHORTLY).result()
    assert ear.wait(DEADLINE)
    with transaction.atomic():
        world.enqueue()
        transaction.set_rollback(True)
    assert not ear.wait(SHORTLY)


def test_a_database_that_is_locked_is_waited_for(world, ear):
    with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"])) as other:
        other.isolation_level = None
        other.execute("BEGIN EXCLUSIVE")
        assert not ear.wait(SHORTLY)
        other.execute("UPDATE atp_type SET handler = 'another'")
        assert not ear.wait(SHORTLY)
        other.execute("ROLLBACK")
    world.enqueue()
    assert ear.wait(DEADLINE)


def test_after_a_checkpoint_it_goes_on(world, ear):
    for _ in range(2):
        execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ear.wait(SHORTLY)
        world.enqueue()
        assert ear.wait(DEADLINE)


def test_closing_ends_a_wait(world, ear):
    waiting = begin_to_wait(ear)
    ear.close()
    assert waiting.result(timeout=DEADLINE / 2) is False
    assert ear.wait(DEADLINE) is False
    ear.close()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_that_comes_is_replaced_and_goes_on(tmp_path, mode):
    """No file is made where there is none, and a write-ahead log is not needed."""
    path = tmp_path / "db.sqlite3"

    def file_id():
        return os.stat(path).st_ino if path.exists() else ()

    def write(path):
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute(f"PRAGMA journal_mode = {mode}")
            other.execute("CREATE TABLE IF NOT EXISTS t (n)")
            other.execute("INSERT INTO t VALUES (1)")
            other.commit()

    with contextlib.closing(listener.Listener(f"{path.as_uri()}?mode=rw", file_id)) as ear:
        assert not ear.wait(SHORTLY)
        assert not path.exists()
        write(path)
        assert ear.wait(DEADLINE)
        assert not ear.wait(SHORTLY)
        write(tmp_path / "new")
        os.replace(tmp_path / "new", path)
        assert ear.wait(DEADLINE)
        waiting = begin_to_wait(ear)
        write(path)
        assert waiting.result()


def test_what_cannot_be_watched_is_an_error(tmp_path):
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Watch([tmp_path / "none"])
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_idle_listener_looks_ever_more_seldom(world, monkeypatch):
    """An idle daemon would use a whole processor otherwise."""
    looks = []
    has_changed = listener.Listener._has_changed
    monkeypatch.setattr(
        listener.Listener, "_has_changed", lambda ear: looks.append(ear) or has_changed(ear)
    )
    with contextlib.closing(world.store.listener()) as ear:
        ear.wait(0)
        looks.clear()
        began = time.monotonic()
        assert not ear.wait(0.3)
        passed = time.monotonic() - began
    # The intervals double from 1 ms to a quarter of a second.
    assert 1 < len(looks) <= 4 * passed + 10
