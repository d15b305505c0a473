"""A real daemon on the database of a test."""

import pytest
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from atp.exceptions import ATPError
from atp.models import Daemon
from atp.testing import DaemonFailed, NotPossible
from tests.app import tasks_testing as tasks
from tests.helpers import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.each_database]


def test_it_runs_what_is_committed(atp_daemon):
    row = tasks.group.enqueue(name="a")
    assert atp_daemon.wait_for(row).state == "FINISHED"
    assert atp_daemon.stop() == 0
    assert not Daemon.objects.exists()


def test_it_is_killed_and_started_again(atp_daemon):
    """G2."""
    first = atp_daemon.pid
    atp_daemon.kill()
    assert not atp_daemon.is_alive
    row = tasks.group.enqueue(name="a")
    atp_daemon.start()
    assert atp_daemon.pid != first
    assert atp_daemon.wait_for(row).state == "FINISHED"


@pytest.mark.django_db(transaction=True)
def test_it_starts_where_the_tables_were_made_without_migrations(atp):
    """As by pytest's --nomigrations."""
    migrations = MigrationRecorder(connection).migration_qs
    migrations.filter(app="atp").update(app="gone")
    try:
        row = tasks.group.enqueue(name="a")
        assert atp.daemon(processes=1).wait_for(row).state == "FINISHED"
    finally:
        migrations.filter(app="gone").update(app="atp")


@pytest.mark.django_db(transaction=True)
def test_what_ends_by_itself_is_told(atp):
    with pytest.raises(DaemonFailed, match="No declared Type matches 'nothing'"):
        atp.daemon("-t", "nothing")


@pytest.mark.django_db(transaction=True)
def test_an_instance_that_does_not_end(atp):
    daemon = atp.daemon("--exclude", "kit.*", processes=1)
    row = tasks.group.enqueue(name="a")
    with pytest.raises(TimeoutError, match=str(row.uuid)):
        daemon.wait_for(row, timeout=0.1)
    wait_for(lambda: "joined" in daemon.log, what="its log")


def test_it_is_refused_inside_a_transaction(atp):
    with pytest.raises(NotPossible, match="TransactionTestCase"):
        atp.daemon()


@pytest.mark.django_db(transaction=True)
def test_it_is_refused_on_a_database_in_memory(atp, monkeypatch):
    if connection.vendor != "sqlite":
        pytest.skip("there is no such thing")
    monkeypatch.setattr(connection, "is_in_memory_db", lambda: True)
    with pytest.raises(NotPossible, match="one in memory") as raised:
        atp.daemon()
    assert isinstance(raised.value, ATPError)
    assert not transaction.get_connection().in_atomic_block
