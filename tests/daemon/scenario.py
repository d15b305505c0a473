"""What tests of several modules do with a daemon, its Tasks and its database."""

import contextlib
import os
import signal
import sqlite3
import subprocess

import psutil
import pytest
from django.db import connection

from atp.models import Daemon
from atp.states import Event
from atp.store import get_store
from atp.store.values import Move
from tests.helpers import DEADLINE, child_environment, wait_for

on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql",
    reason="SQLite has no server, one writer at a time, and no locks of rows",
)
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="of SQLite's file")

# The transitions of an Instance that has finished in its first attempt, or in its second.
ONCE = ["enqueue→ACCEPTED 0", "claim→SCHEDULED 1", "start→RUNNING 1", "finish→FINISHED 1"]
TWICE = [
    *ONCE[:3],
    *("expire→ACCEPTED 1", "claim→SCHEDULED 2", "start→RUNNING 2", "finish→FINISHED 2"),
]


def wait_until(state, instance):
    wait_for(lambda: instance.refresh_from_db() or instance.state == state, what=state)


def run(*command, **environment):
    """Run a program to its end; returns that with its output."""
    return subprocess.run(
        command,
        env=child_environment(**environment),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )


def lose(instance):
    """Take its Task away from the one daemon, which runs its first attempt."""
    lost = Move(event=Event.EXPIRE, instance=instance.pk, attempt=1, who="the test")
    assert get_store().records.record([lost], daemon=Daemon.objects.get().uuid) == []


def ask(statement, *parameters):
    """Return the first value that the database answers, if it answers any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchone()[0] if cursor.description else None


def cut_connections():
    """End all other sessions, except those that keep a lock for a test."""
    ask(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
        "AND datname = current_database() AND state NOT LIKE 'idle in transaction%'"
    )


@contextlib.contextmanager
def stopped_between_transactions(pid):
    """Keep a process stopped, but not inside a transaction that would keep all others waiting."""

    def stop():
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        if connection.vendor != "sqlite":
            return True
        with contextlib.closing(
            sqlite3.connect(connection.settings_dict["NAME"], timeout=0.1)
        ) as raw:
            try:
                raw.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                return False
            raw.rollback()
            return True

    wait_for(stop, what="a moment outside a transaction")
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # its supervisor has ended it
            os.kill(pid, signal.SIGCONT)


# Whoever has this advisory lock keeps claims under way. They do not wait for the lock, as
# a daemon waits for no lock for long: they sleep, and look again.
_KEY = 4711
_TRIGGER = f"""
CREATE FUNCTION keep_claims() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {_KEY}) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_claims BEFORE INSERT ON atp_logrecord
    FOR EACH ROW WHEN (NEW.kind = 'claim') EXECUTE FUNCTION keep_claims()
"""
_UNDER_WAY = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@contextlib.contextmanager
def slow_claims():
    """Keep claims under way; yields what waits for one, and what lets them go on."""

    def one_is_under_way():
        wait_for(lambda: ask(_UNDER_WAY), what="a claim under way")

    def go_on():
        ask(f"SELECT pg_advisory_unlock({_KEY})")

    with connection.cursor() as cursor:
        cursor.execute(_TRIGGER)
    ask(f"SELECT pg_advisory_lock({_KEY}) IS NULL")
    try:
        yield one_is_under_way, go_on
    finally:
        go_on()
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER keep_claims ON atp_logrecord; DROP FUNCTION keep_claims()")
