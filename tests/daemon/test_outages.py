"""The database refuses, fails and goes silent, and nothing is lost (G11)."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from django.db import connection

from atp.models import Instance
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import child_environment, stays, wait_for

from . import harness
from .proxy import SlowProxy


def on_postgres():
    return connection.vendor == "postgresql"


@contextlib.contextmanager
def refused_by_the_server(table):
    """Let the server refuse every update of a table, as where it has become read-only."""
    with connection.cursor() as cursor:
        if on_postgres():
            cursor.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$"
            )
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
            )
            undo = f"DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()"
        else:
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
            undo = "DROP TRIGGER refuse"
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(undo)


def test_result_that_the_server_refuses_is_kept(atpd, record, flag):
    """A server that is read-only for a moment, as in a fail-over, costs no result (G11)."""
    if not on_postgres():
        pytest.skip("SQLite has no server that could fail over")
    instances = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(4)
    )
    daemon = atpd(processes=4)
    record.wait_for("start", 4)
    wait_for(lambda: Instance.objects.filter(state=State.RUNNING).count() == 4)
    with refused_by_the_server("atp_instance"):
        flag.touch()
        record.wait_for("end", 4)
        stays(lambda: not daemon.facts("dispatcher_died"), 1.5)
    for instance in instances:
        instance.wait(20)
    assert {(i.state, i.attempt) for i in instances} == {(State.FINISHED, 1)}
    assert not daemon.facts("dispatcher_died")


def test_failure_that_lasts_is_not_a_flood(atpd, record):
    """While every claim fails, a daemon tries ever more slowly, not ten times a second (G11)."""
    with refused_by_the_server("atp_task"):
        instance = types.note.enqueue(path=str(record))
        daemon = atpd(processes=1)
        daemon.wait_for_fact("database_failed")
        stays(lambda: len(daemon.facts("rejoined")) < 15, 5)
        assert len(daemon.facts("database_failed")) == 1
    assert instance.wait(20).state == State.FINISHED


def test_connection_that_dies_just_after_it_was_cut(atpd, record, monkeypatch):
    """A link that dies while connecting, past the limit of a call, hangs nothing (G11)."""
    if not on_postgres():
        pytest.skip("SQLite has no connections that could die")
    with SlowProxy() as proxy:
        own = child_environment(DATABASE_URL=proxy.url)
        monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
        daemon = atpd(processes=1).ready()
        proxy.die_after_connecting(delay=4.6)  # STATEMENT_TIMEOUT is 4 s
        daemon.wait_for_fact("database_slow")
        proxy.dead.wait(20)
        proxy.recover()
        instance = types.note.enqueue(path=str(record))
        assert instance.wait(20).state == State.FINISHED


def test_database_file_that_is_replaced(atpd, record, tmp_path):
    """A daemon does not go on with a file that nobody else sees any more (G1, G11)."""
    if on_postgres():
        pytest.skip("only SQLite's database is a file that can be replaced")
    name = Path(connection.settings_dict["NAME"])
    daemon = atpd(processes=1).ready()
    with contextlib.ExitStack() as stack:
        old, copy = (
            stack.enter_context(contextlib.closing(sqlite3.connect(path)))
            for path in (name, tmp_path / "copy")
        )
        old.backup(copy)
    connection.close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{name}{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", name)
    instance = types.note.enqueue(path=str(record))
    daemon.wait_for_fact("lease_lost")
    assert instance.wait(20).state == State.FINISHED
    assert daemon.stop() == 0
