"""A worker's connections: kept from task to task, each time as good as new (G5)."""

import os
import select

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections, connection, transaction
from django.db.backends.signals import connection_created

from atp import queue
from atp.models import Type
from tests.app.tasks_daemon import noop
from tests.helpers import Thread

from . import inside
from .scenario import ask, on_postgresql, on_sqlite


@pytest.fixture
def connections(transactional_db):
    connection.close()
    # As in a worker that has just begun.
    vars(connection).pop("get_new_connection", None)
    found = inside.Connections()
    yield found
    found.put_back()
    found.let_go()


def who():
    """What tells one connection from another."""
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        return ask("SELECT pg_backend_pid()")
    return id(connection.connection)


def test_connection_is_kept_between_tasks_and_closed_when_idle(connections, settings):
    """Though Django closes it after each request; receivers of connection_created run each time."""
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


@on_postgresql
@pytest.mark.parametrize("prepared", [False, True], ids=["", "beside prepared statements"])
def test_server_resets_what_a_task_leaves_in_its_session(connections, monkeypatch, prepared):
    """On the same connection. ATP's own statements stay prepared."""

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


@on_postgresql
def test_settings_of_the_driver_are_reset_or_the_connection_is_replaced(connections):
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


@on_sqlite
def test_changed_sqlite_connection_is_replaced(connections):

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


@on_postgresql
@pytest.mark.parametrize("when", ["between tasks", "in a task"])
def test_lost_connection_is_replaced(connections, when):
    first = who()
    if when == "between tasks":
        connections.put_back()
    Thread(ask, "SELECT pg_terminate_backend(%s, 10000)", first).result()
    if when == "in a task":
        connections.put_back()
    assert who() != first


@pytest.mark.parametrize("how", ["autocommit", "atomic", "BEGIN"])
def test_transaction_left_open_is_rolled_back_after_its_task(connections, how):
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


def test_forked_child_opens_its_own_connection(connections):
    """G5."""
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


def test_connections_of_other_threads_stay_open(connections):
    own = who()
    connections.put_back()

    def use():
        connection.ensure_connection()
        connections.put_back()  # as if the worker's thread did
        assert connection.connection is not None

    Thread(use).result()
    assert who() == own
