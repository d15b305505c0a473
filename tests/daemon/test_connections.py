"""A worker's connections: kept from task to task, each time as good as new (G5)."""

import os
import select

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections, connection, transaction
from django.db.backends.signals import connection_created

from atp import queue
from atp.daemon.worker.connections import Connections
from atp.models import Type
from tests.helpers import Thread

postgres = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="of PostgreSQL")
sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="of SQLite")


@pytest.fixture
def connections(transactional_db):
    connection.close()
    # As in a worker that has just begun.
    vars(connection).pop("get_new_connection", None)
    found = Connections()
    yield found
    found.put_back()
    found.let_go()


def ask(sql, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone()[0] if cursor.description else None


def who():
    """What tells one connection from another."""
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        return ask("SELECT pg_backend_pid()")
    return id(connection.connection)


def test_a_connection_is_kept(connections):
    """Django's default closes it after each request; a worker serves none."""
    assert connection.settings_dict["CONN_MAX_AGE"] == 0
    first = who()
    connections.put_back()
    assert connection.connection is None
    assert who() == first


def test_old_connections_that_a_handler_closes(connections):
    """As handlers do that were written for workers which keep none."""
    first = who()
    close_old_connections()
    request_finished.send(sender=None)
    connections.put_back()
    assert who() == first


def test_what_a_project_does_with_a_new_connection_is_done_with_a_kept_one(connections):
    done = []

    def receive(connection, **kwargs):
        done.append(connection.alias)

    connection_created.connect(receive)
    try:
        for _ in range(2):
            who()
            connections.put_back()
    finally:
        connection_created.disconnect(receive)
    assert done == ["default", "default"]


@postgres
def test_an_attempt_without_the_database_costs_nothing(connections):
    """The server hears nothing of it."""
    pid = who()
    connections.put_back()
    heard = "SELECT state_change::text FROM pg_stat_activity WHERE pid = %s"
    before = Thread(ask, heard, pid).result()
    connections.put_back()
    assert Thread(ask, heard, pid).result() == before


@postgres
@pytest.mark.parametrize(
    ("leave", "look"),
    [
        ("SET statement_timeout = 12345", "SHOW statement_timeout"),
        ("SET search_path = pg_catalog", "SHOW search_path"),
        ("SET client_encoding = latin1", "SHOW client_encoding"),
        ("SET ROLE pg_read_all_data", "SELECT current_user::text"),
        ("SET SESSION AUTHORIZATION pg_monitor", "SELECT session_user::text"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW transaction_read_only"),
        (
            "SELECT set_config('shop.tenant', 'seven', false)",
            "SELECT coalesce(nullif(current_setting('shop.tenant', true), ''), 'none')",
        ),
        ("CREATE TEMP TABLE own (id int)", "SELECT count(*) FROM pg_class WHERE relname = 'own'"),
        (
            "SELECT pg_advisory_lock(77)",
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        ),
        (
            "PREPARE own AS SELECT 1",
            "SELECT count(*) FROM pg_prepared_statements WHERE name = 'own'",
        ),
        ("LISTEN own", "SELECT count(*) FROM pg_listening_channels()"),
        (
            "DECLARE own CURSOR WITH HOLD FOR SELECT 1",
            "SELECT count(*) FROM pg_cursors WHERE name = 'own'",
        ),
    ],
    ids=lambda text: text.split()[1].lower() if not text.startswith("SELECT c") else "",
)
@pytest.mark.parametrize("prepared", [False, True], ids=["", "beside prepared statements"])
def test_what_a_session_leaves_is_put_back(connections, leave, look, prepared):
    """By the server, on the same connection."""
    first = who()
    if prepared:
        _enqueue_often()
    expected = ask(look)
    ask(leave)
    if not leave.startswith("SET client"):
        assert ask(look) != expected
    connections.put_back()
    assert ask(look) == expected
    assert who() == first


def _enqueue_often():
    """Until the statement is prepared, whichever of its two it is at first."""
    queue.register_all()
    for _ in range(10):
        _noop().enqueue()


def _noop():
    from tests.app.tasks_daemon import noop

    return noop


@postgres
@pytest.mark.parametrize("prepared", [False, True], ids=["", "beside prepared statements"])
def test_the_time_zone_is_put_back_with_the_rest(connections, monkeypatch, prepared):
    """Django sets it on a new connection, and has nothing left to say to a kept one."""
    if prepared:
        _enqueue_often()
    ask("SET TIME ZONE 'Asia/Tokyo'")
    connections.put_back()
    monkeypatch.setattr(connection, "_configure_timezone", lambda *args: False)
    assert ask("SHOW TimeZone") == connection.timezone_name


@postgres
def test_prepared_statements_of_atp_stay(connections):
    """To plan one anew takes longer than to execute it."""
    _enqueue_often()
    ours = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'atp%%'"
    assert ask(ours) > 0
    connections.put_back()
    assert ask(ours) > 0
    _noop().enqueue()


@postgres
def test_what_the_driver_itself_was_told_is_put_back(connections):
    first = who()
    connection.set_autocommit(False)
    connection.rollback()
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection.autocommit
    assert who() == first
    connection.connection.isolation_level = 4  # of both drivers, and the server is not told
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection.isolation_level != 4
    assert who() != first


@sqlite
@pytest.mark.parametrize(
    "leave",
    [
        "PRAGMA foreign_keys = OFF",
        "PRAGMA query_only = ON",
        "PRAGMA case_sensitive_like = ON",
        "CREATE TEMP TABLE own (id int)",
        "ATTACH DATABASE ':memory:' AS own",
    ],
)
def test_a_changed_connection_to_sqlite_is_another(connections, leave):
    """Nothing there can be put back."""
    connection.ensure_connection()
    first = connection.connection
    ask(leave)
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection is not first


@sqlite
def test_a_connection_to_sqlite_that_is_no_longer_watched_is_another(connections):
    """Whoever takes the authorizer's place may have done anything."""
    connection.ensure_connection()
    first = connection.connection
    first.set_authorizer(None)
    ask("PRAGMA query_only = ON")
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection is not first


@sqlite
def test_a_change_to_sqlite_by_a_statement_that_was_prepared_before(connections):
    """The driver keeps statements, and those that it executes again are not seen."""
    connection.ensure_connection()
    first = connection.connection
    before = ask("PRAGMA cache_size")
    ask("PRAGMA cache_size = 77")
    ask(f"PRAGMA cache_size = {before}")
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection is first
    ask("PRAGMA cache_size = 77")
    connections.put_back()
    connection.ensure_connection()
    assert connection.connection is not first


@sqlite
def test_the_rows_of_sqlite(connections):
    connection.ensure_connection()
    connection.connection.row_factory = lambda cursor, row: list(row)
    connections.put_back()
    assert isinstance(connection.cursor().execute("SELECT 1").fetchone(), tuple)


@postgres
def test_a_stale_connection_never_reaches_the_next_task(connections):
    first = who()
    connections.put_back()
    Thread(_terminate, first).result()
    assert who() != first


def _terminate(pid):
    assert ask("SELECT pg_terminate_backend(%s, 10000)", pid)


@postgres
def test_a_connection_that_failed_in_a_task_is_replaced(connections):
    first = who()
    Thread(_terminate, first).result()
    connections.put_back()
    assert who() != first


@postgres
def test_other_parameters_are_another_connection(connections, monkeypatch):
    """Of a project that chooses the database while it runs."""
    first = who()
    connections.put_back()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "application_name", "other")
    assert who() != first


@pytest.mark.parametrize("how", ["autocommit", "atomic", "BEGIN"])
def test_a_transaction_left_open_ends_with_its_task(connections, how):
    queue.register_all()
    if how == "autocommit":
        transaction.set_autocommit(False)
    elif how == "atomic":
        transaction.atomic().__enter__()
    else:
        ask("BEGIN")
    Type.objects.update(handler="changed")
    assert connections.with_transaction() == ["default"]
    assert connections.with_transaction(but="default") == []
    connections.put_back()
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    assert not Type.objects.filter(handler="changed").exists()


def test_a_copy_of_the_process_opens_its_own(connections):
    """A child that a handler forks does not share a session with its worker (G5)."""
    connection.ensure_connection()
    kept = connection.connection
    connections.put_back()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            connection.ensure_connection()
            os.write(writing, b"own" if connection.connection is not kept else b"its")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert select.select([reading], [], [], 0)[0]
    assert os.read(reading, 3) == b"own"
    assert who()
    os.close(reading)
    os.close(writing)


def test_idle_connections_are_let_go(connections, settings):
    who()
    connections.put_back()
    assert connections.rest()
    connections.let_go()
    assert not connections.rest()
    settings.ATP = settings.ATP | {"KEEP_CONNECTIONS": 0}
    who()
    connections.put_back()
    assert not connections.rest()
    assert connection.connection is None


def test_connections_of_other_threads_are_left_alone(transactional_db):
    connections = Connections()

    def use():
        connection.ensure_connection()
        connections.put_back()  # as if the worker's thread did
        connection.close()

    Thread(use).result()
    connections.put_back()
    assert connections._opened == {}
