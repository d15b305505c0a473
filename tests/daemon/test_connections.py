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
from tests.app.tasks_daemon import noop
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


def test_a_connection_is_kept_and_let_go_when_idle(connections, settings):
    """Django's default closes it after each request, and so do handlers written for that.

    What a project does with a new connection is done with a kept one.
    """
    assert connection.settings_dict["CONN_MAX_AGE"] == 0
    done = []

    def receive(connection, **kwargs):
        done.append(connection.alias)

    connection_created.connect(receive)
    try:
        first = who()
        connections.put_back()
        assert connection.connection is None
        assert who() == first
        assert done == ["default", "default"]
    finally:
        connection_created.disconnect(receive)
    close_old_connections()
    request_finished.send(sender=None)
    connections.put_back()
    assert who() == first
    connections.put_back()
    assert connections.rest()
    connections.let_go()
    assert not connections.rest()
    settings.ATP = settings.ATP | {"KEEP_CONNECTIONS": 0}
    who()
    connections.put_back()
    assert not connections.rest()
    assert connection.connection is None


# What a task may leave in its session, and how that is seen.
LEFT = {
    "SET statement_timeout = 12345": "SHOW statement_timeout",
    "SET search_path = pg_catalog": "SHOW search_path",
    "SET client_encoding = latin1": "SHOW client_encoding",
    "SET ROLE pg_read_all_data": "SELECT current_user::text",
    "SET SESSION AUTHORIZATION pg_monitor": "SELECT session_user::text",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": "SHOW transaction_read_only",
    "SELECT set_config('shop.tenant', 'seven', false)": (
        "SELECT coalesce(nullif(current_setting('shop.tenant', true), ''), 'none')"
    ),
    "CREATE TEMP TABLE own (id int)": "SELECT count(*) FROM pg_class WHERE relname = 'own'",
    "SELECT pg_advisory_lock(77)": (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    ),
    "PREPARE own AS SELECT 1": "SELECT count(*) FROM pg_prepared_statements WHERE name = 'own'",
    "LISTEN own": "SELECT count(*) FROM pg_listening_channels()",
    "DECLARE own CURSOR WITH HOLD FOR SELECT 1": (
        "SELECT count(*) FROM pg_cursors WHERE name = 'own'"
    ),
}


@postgres
@pytest.mark.parametrize("prepared", [False, True], ids=["", "beside prepared statements"])
def test_what_a_session_leaves_is_put_back(connections, monkeypatch, prepared):
    """By the server, on the same connection. ATP's own statements stay prepared."""

    def enqueue_often():
        """Until the statement is prepared, whichever of its two it is at first."""
        for _ in range(10 if prepared else 0):
            noop.enqueue()

    queue.register_all()
    first = who()
    if prepared:
        enqueue_often()
        connections.put_back()
        assert ask("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'atp%%'") > 0
    for leave, look in LEFT.items():
        enqueue_often()
        expected = ask(look)
        ask(leave)
        if not leave.startswith("SET client"):
            assert ask(look) != expected, leave
        connections.put_back()
        assert ask(look) == expected, leave
        assert who() == first, leave
    # Django sets it on a new connection, and has nothing left to say to a kept one.
    ask("SET TIME ZONE 'Asia/Tokyo'")
    connections.put_back()
    monkeypatch.setattr(connection, "_configure_timezone", lambda *args: False)
    assert ask("SHOW TimeZone") == connection.timezone_name
    enqueue_often()


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
def test_a_changed_connection_to_sqlite_is_another(connections):
    """Nothing there can be put back."""

    def is_kept(change):
        connection.ensure_connection()
        first = connection.connection
        change()
        connections.put_back()
        connection.ensure_connection()
        return connection.connection is first

    for sql in (
        "PRAGMA foreign_keys = OFF",
        "PRAGMA query_only = ON",
        "PRAGMA case_sensitive_like = ON",
        "CREATE TEMP TABLE own (id int)",
        "ATTACH DATABASE ':memory:' AS own",
    ):
        assert not is_kept(lambda sql=sql: ask(sql)), sql
    # Whoever takes the authorizer's place may have done anything.
    assert not is_kept(lambda: connection.connection.set_authorizer(None))
    # The driver keeps statements, and those that it executes again are not seen.
    before = ask("PRAGMA cache_size")
    assert is_kept(lambda: [ask(f"PRAGMA cache_size = {size}") for size in (77, before)])
    assert not is_kept(lambda: ask("PRAGMA cache_size = 77"))


@postgres
@pytest.mark.parametrize("when", ["between tasks", "in a task"])
def test_a_connection_that_was_cut_is_replaced(connections, when):
    first = who()
    if when == "between tasks":
        connections.put_back()
    Thread(ask, "SELECT pg_terminate_backend(%s, 10000)", first).result()
    if when == "in a task":
        connections.put_back()
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


def test_connections_of_other_threads_are_left_alone(connections):
    own = who()
    connections.put_back()

    def use():
        connection.ensure_connection()
        connections.put_back()  # as if the worker's thread did
        assert connection.connection is not None

    Thread(use).result()
    assert who() == own
