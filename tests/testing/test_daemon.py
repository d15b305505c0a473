"""A real daemon that runs on the database of a test."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from atp.models import Daemon
from atp.testing import DaemonFailed, NotPossible
from tests.app import tasks_testing as tasks
from tests.helpers import wait_for

pytestmark = pytest.mark.processes


def test_the_daemon_runs_committed_tasks_and_survives_a_kill(atp_daemon):
    """A Task is finished after its daemon was killed and started again (G2)."""
    row = tasks.group.enqueue(name="a")
    assert atp_daemon.wait_for(row).state == "FINISHED"
    later = tasks.group.using(run_after=timedelta(hours=1)).enqueue(name="b")
    with pytest.raises(TimeoutError, match=str(later.uuid)):
        atp_daemon.wait_for(later, timeout=0.1)
    wait_for(lambda: "joined" in atp_daemon.log, what="its log")
    first = atp_daemon.pid
    atp_daemon.kill()
    assert not atp_daemon.is_alive
    killed = set(Daemon.objects.values_list("uuid", flat=True))
    row = tasks.group.enqueue(name="c")
    atp_daemon.start()
    assert atp_daemon.pid != first
    assert atp_daemon.wait_for(row).state == "FINISHED"
    assert atp_daemon.stop() == 0
    # On PostgreSQL the row of the other stays until its lease is over.
    assert set(Daemon.objects.values_list("uuid", flat=True)) <= killed


@pytest.mark.django_db(transaction=True)
def test_the_daemon_starts_on_tables_made_without_migrations(atp):
    """pytest's option --nomigrations makes such tables."""
    migrations = MigrationRecorder(connection).migration_qs
    migrations.filter(app="atp").update(app="gone")
    try:
        row = tasks.group.enqueue(name="a")
        assert atp.daemon(processes=1).wait_for(row).state == "FINISHED"
    finally:
        migrations.filter(app="gone").update(app="atp")


@pytest.mark.django_db(transaction=True)
def test_a_daemon_that_exits_at_its_start_is_reported(atp):
    with pytest.raises(DaemonFailed, match="No declared Type matches 'nothing'"):
        atp.daemon("-t", "nothing")


def test_a_daemon_cannot_start_inside_a_transaction(atp):
    with pytest.raises(NotPossible, match="TransactionTestCase"):
        atp.daemon()
