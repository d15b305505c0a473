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
    waiting = Thread(ear.wait, DEADLINE)
    wait_for(ear._in_use.locked, what="the wait")
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
    waiting = Thread(ear.wait, DEADLINE)
    wait_for(ear._in_use.locked, what="the wait")
    ear.close()
    assert waiting.result(timeout=DEADLINE / 2) is False
    assert ear.wait(DEADLINE) is False
    ear.close()


class TestAFileOfItsOwn:
    """The database's file comes and goes."""

    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "db.sqlite3"

    @pytest.fixture
    def own(self, path):
        def file_id():
            try:
                return os.stat(path).st_ino
            except OSError:
                return ()

        with contextlib.closing(listener.Listener(f"{path.as_uri()}?mode=rw", file_id)) as own:
            yield own

    @staticmethod
    def write(path, mode="WAL"):
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute(f"PRAGMA journal_mode = {mode}")
            other.execute("CREATE TABLE IF NOT EXISTS t (n)")
            other.execute("INSERT INTO t VALUES (1)")
            other.commit()

    def test_none_is_made_and_another_of_the_name_is_another_database(self, own, path, tmp_path):
        assert not own.wait(SHORTLY)
        assert not path.exists()
        self.write(path)
        assert own.wait(DEADLINE)
        self.write(tmp_path / "new")
        os.replace(tmp_path / "new", path)
        assert own.wait(DEADLINE)
        self.write(path)
        assert own.wait(DEADLINE)

    def test_without_a_write_ahead_log(self, own, path):
        self.write(path, mode="DELETE")
        assert own.wait(DEADLINE)
        assert not own.wait(SHORTLY)
        waiting = Thread(own.wait, DEADLINE)
        wait_for(own._in_use.locked, what="the wait")
        self.write(path, mode="DELETE")
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
