"""Tests of a database that lacks ATP's tables, or has those of an older release."""

import re

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from atp import queue
from atp.exceptions import NotMigrated
from atp.models import Type
from atp.operations import base as migrated

from .api.client import Api, problem
from .app.tasks import echo

pytestmark = pytest.mark.each_database

MISSING = "ATP's tables are missing in database 'default': run manage.py migrate."
# Operations that do not query the database, or only when their QuerySet is evaluated.
WITHOUT_QUERY = {"Call", "Plan", "aget", "declared", "declared_limits", "error_groups", "timing"}


@pytest.fixture
def without_tables(transactional_db):
    """Run the test with a queue's database that has no table of ATP."""
    names = [t for t in connection.introspection.table_names() if t.startswith("atp_")]
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"ALTER TABLE {name} RENAME TO un_{name}")
        yield
        for name in names:
            cursor.execute(f"ALTER TABLE un_{name} RENAME TO {name}")


@pytest.fixture
def older(transactional_db):
    """Undo the last migration in the queue's database during the test; yield its name."""
    name = migrated._migrations()[-1]
    table = Type._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'atp' AND name = %s", [name])
        cursor.execute(f"ALTER TABLE {table} RENAME COLUMN family TO un_family")
        yield name
        cursor.execute(f"ALTER TABLE {table} RENAME COLUMN un_family TO family")
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('atp', %s, CURRENT_TIMESTAMP)",
            [name],
        )


def test_operations_name_the_remedy_for_missing_tables(without_tables):
    for operation in (
        echo.enqueue,
        lambda: echo.enqueue_many([{}]),
        lambda: queue.enqueue_calls([echo.call()]),
        lambda: queue.register(echo),
        lambda: queue.get("00000000-0000-0000-0000-000000000000"),
        lambda: queue.hold("tests.echo"),
        queue.gates,
        queue.purge,
        lambda: queue.explain("tests.echo"),
    ):
        with pytest.raises(NotMigrated, match=f"^{re.escape(MISSING)}$"):
            operation()
    # The error has broken the transaction, in which no further query is possible.
    told = r"in database 'default': run manage\.py migrate\.$"
    with pytest.raises(NotMigrated, match=told), transaction.atomic():
        queue.get("00000000-0000-0000-0000-000000000000")


def test_error_for_a_missing_column_names_the_migration(older):
    with pytest.raises(NotMigrated, match=rf"not applied \({older}\) in .*: run manage.py mig"):
        queue.get_type("tests.echo")


def test_every_queue_operation_translates_errors_of_missing_tables():
    assert migrated.migrate_command("queue") == "manage.py migrate --database queue"
    for name in sorted(set(queue.__all__) - WITHOUT_QUERY):
        assert hasattr(getattr(queue, name), "__wrapped__"), f"@needs_tables is missing: {name}"


def test_each_user_interface_says_to_run_migrate_if_tables_are_missing(
    without_tables, admin_user, admin_client
):
    with pytest.raises(CommandError, match=f"^{re.escape(MISSING)}$"):
        call_command("atp", "list")
    answer = Api(admin_user).get("instances")
    assert (answer.status_code, problem(answer)) == (503, "not-migrated")
    assert answer.json()["detail"] == MISSING
    page = admin_client.get("/atp/instances/")
    assert page.status_code == 503
    assert "run manage.py migrate" in page.content.decode()
