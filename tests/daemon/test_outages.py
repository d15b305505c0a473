"""The database refuses, fails and goes silent, and nothing is lost (G11)."""

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from atp.conf import settings
from atp.models import Instance
from atp.states import State
from tests import environment, patience
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, manage, stays, wait_for
from tests.postgres import EmbeddedPostgres

from . import harness
from .proxy import SlowProxy


def on_postgres():
    return connection.vendor == "postgresql"


def four_running(atpd, record, flag, **settings):
    """Start a daemon with four tasks that wait for the flag; return it, and their Instances."""
    instances = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(4)
    )
    daemon = atpd(processes=4, settings=settings)
    record.wait_for("start", 4)
    wait_for(lambda: Instance.objects.filter(state=State.RUNNING).count() == 4)
    return daemon, instances


def none_is_charged(instances):
    for instance in instances:
        instance.wait(DEADLINE)
    assert {(i.state, i.attempt, i.lost) for i in instances} == {(State.FINISHED, 1, 0)}


@contextlib.contextmanager
def refused_by_the_server(table, code="25006"):
    """Let the server refuse every update of a table, as where it has become read-only.

    ``code`` is that of PostgreSQL's error.
    """
    with connection.cursor() as cursor:
        if on_postgres():
            cursor.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$"
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


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("25006", id="read-only"),
        pytest.param("53100", id="disk-full"),
        pytest.param("53200", id="out-of-memory"),
        pytest.param("57P01", id="shutting-down"),
    ],
)
def test_result_that_the_server_refuses_is_kept(atpd, record, flag, code):
    """What a server cannot take for a moment, as in a fail-over, costs no result (G11)."""
    if not on_postgres():
        pytest.skip("SQLite has no server that could fail over")
    daemon, instances = four_running(atpd, record, flag)
    with refused_by_the_server("atp_instance", code):
        flag.touch()
        record.wait_for("end", 4)
        stays(lambda: not daemon.facts("dispatcher_died"), 1.5)
    none_is_charged(instances)
    assert not daemon.facts("dispatcher_died")


def test_failure_that_lasts_is_not_a_flood(atpd, record):
    """While every claim fails, a daemon tries ever more slowly, not ten times a second (G11)."""
    with refused_by_the_server("atp_task"):
        instance = types.note.enqueue(path=str(record))
        daemon = atpd(processes=1)
        daemon.wait_for_fact("database_failed")
        stays(lambda: len(daemon.facts("rejoined")) < 15, 5)
        assert len(daemon.facts("database_failed")) == 1
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_connection_that_dies_just_after_it_was_cut(atpd, record, monkeypatch):
    """A link that dies while connecting, past the limit of a call, hangs nothing (G11)."""
    if not on_postgres():
        pytest.skip("SQLite has no connections that could die")
    with SlowProxy() as proxy:
        own = child_environment(DATABASE_URL=proxy.url)
        monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
        daemon = atpd(processes=1).ready()
        proxy.die_after_connecting(delay=settings.STATEMENT_TIMEOUT + 0.6)
        daemon.wait_for_fact("database_slow")
        proxy.dead.wait(DEADLINE)
        proxy.recover()
        instance = types.note.enqueue(path=str(record))
        assert instance.wait(DEADLINE).state == State.FINISHED


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
    other = shutil.copy(tmp_path / "copy", f"{name}.copy")
    for suffix in ("-wal", "-shm"):
        Path(f"{name}{suffix}").unlink(missing_ok=True)
    # At no time is there none: the daemon would make one that is empty.
    os.replace(other, name)
    instance = types.note.enqueue(path=str(record))
    daemon.wait_for_fact("lease_lost")
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0


def test_results_wait_for_a_disk_that_refuses(atpd, record, flag):
    """G11: whatever the kernel refuses to write now, it is asked again later."""
    if on_postgres():
        pytest.skip("the server writes there; see test_result_that_the_server_refuses_is_kept")
    daemon, instances = four_running(atpd, record, flag)
    dispatcher = daemon.dispatcher()
    _, most = resource.prlimit(dispatcher, resource.RLIMIT_FSIZE)
    # No file that this process writes may be longer now; nor may its log.
    resource.prlimit(dispatcher, resource.RLIMIT_FSIZE, (1, most))
    flag.touch()
    record.wait_for("end", 4)
    stays(lambda: not Instance.objects.filter(state=State.FINISHED).exists(), 2)
    resource.prlimit(dispatcher, resource.RLIMIT_FSIZE, (most, most))
    daemon.wait_for_fact("database_back")
    none_is_charged(instances)
    assert daemon.dispatcher() == dispatcher


def test_database_is_locked(atpd, record, flag, monkeypatch):
    """G11: another process keeps SQLite's only writer's place for longer than KILL_AFTER."""
    if on_postgres():
        pytest.skip("only SQLite has one writer at a time")
    url = f"sqlite:///{connection.settings_dict['NAME']}?timeout=1"
    own = child_environment(DATABASE_URL=url)
    monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
    leases = {"LEASE": 9.0, "KILL_AFTER": 5.0, "RENEW_EVERY": 0.5, "STATEMENT_TIMEOUT": 4.0}
    daemon, instances = four_running(atpd, record, flag, **leases)
    waiting = types.note.enqueue(path=str(record))
    dispatcher = daemon.dispatcher()
    with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=20)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        flag.touch()
        record.wait_for("end", 4)
        assert "locked" in daemon.wait_for_fact("database_failed")["error"]
        longer_than_kill_after = patience.scaled(leases)["KILL_AFTER"] + 1
        stays(lambda: not daemon.facts("dispatcher_died"), longer_than_kill_after)
        raw.rollback()
    daemon.wait_for_fact("database_back")
    none_is_charged([*instances, waiting])
    assert not daemon.facts("worker_killed")
    assert daemon.dispatcher() == dispatcher


@contextlib.contextmanager
def nobody_let_in():
    """Have the server turn everybody away that wants to connect, and cut off who is."""
    entry = connection.settings_dict
    name = entry["NAME"]
    with elsewhere() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        cursor.execute(terminate, [name])
    try:
        yield
    finally:
        with elsewhere() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        connection.close()


@contextlib.contextmanager
def elsewhere():
    """A cursor in another database of the same server."""
    with connection._nodb_cursor() as cursor:
        yield cursor


def test_nobody_is_let_in(atpd, record, flag):
    """G11: connections that are refused, as when there are too many, are tried again."""
    if not on_postgres():
        pytest.skip("SQLite has no connections that could be refused")
    daemon, instances = four_running(atpd, record, flag)
    dispatcher = daemon.dispatcher()
    with nobody_let_in():
        flag.touch()
        record.wait_for("end", 4)
        daemon.wait_for_fact("database_failed")
        stays(lambda: not daemon.facts("dispatcher_died"), 2)
    daemon.wait_for_fact("database_back")
    none_is_charged(instances)
    assert daemon.dispatcher() == dispatcher


@pytest.fixture
def own_server(tmp_path):
    """A PostgreSQL of this test's own, with an empty queue; and its URL."""
    server = EmbeddedPostgres(environment.folder() / f"outage-{os.urandom(4).hex()}")
    server.start()
    try:
        own = child_environment(DATABASE_URL=server.url())
        subprocess.run(manage("migrate", "-v", "0"), env=own, check=True)
        yield server
    finally:
        server.stop("immediate")


def asked(server, statement):
    """The rows that a server of its own answers."""
    raw = connection.Database.connect(server.url())
    with contextlib.closing(raw), raw.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.timeout(240)
def test_stopped_for_a_while_in_the_middle_of_many(atpd, own_server, record, monkeypatch):
    """G11: PostgreSQL stopped for 15 s amid 500 tasks: all finish, none charged, nobody exits."""
    if not on_postgres():
        pytest.skip("SQLite has no server that could be stopped")
    own = child_environment(DATABASE_URL=own_server.url())
    monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
    enqueue = (
        "from tests.app import tasks_daemon as types;"
        f"types.nap.enqueue_many({{'path': {str(record)!r}, 'number': n}} for n in range(500))"
    )
    usual = {"LEASE": 30.0, "KILL_AFTER": 26.0, "STATEMENT_TIMEOUT": 5.0, "RENEW_EVERY": 5.0}
    daemons = [atpd(processes=4, settings=usual) for _ in range(2)]
    for daemon in daemons:
        daemon.ready(workers=4)
    subprocess.run(manage("shell", "-v", "0", "-c", enqueue), env=own, check=True)
    record.wait_for("end", 100)
    processes = [pair for daemon in daemons for pair in daemon.family()]
    own_server.stop("fast")
    stays(lambda: all(harness.is_alive(*pair) for pair in processes), 15, what="every process")
    own_server.start()
    back = datetime.now(UTC)
    for daemon in daemons:
        fact = daemon.wait_for_fact("database_back")
        # Within 2 s, and what a loaded machine adds.
        late = (datetime.fromisoformat(fact["time"]) - back).total_seconds()
        assert late < 2 + 8 * patience.factor()
    left = "SELECT count(*) FROM atp_task"
    wait_for(lambda: asked(own_server, left) == [(0,)], 60, what="the rest")
    charged = "SELECT state, sum(restarts), sum(lost), sum(retries), count(*) FROM atp_instance"
    assert asked(own_server, f"{charged} GROUP BY state") == [("FINISHED", 0, 0, 0, 500)]
    assert set(record.numbers("end").values()) == {1}
    assert [pair for daemon in daemons for pair in daemon.family()] == processes
