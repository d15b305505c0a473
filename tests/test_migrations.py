"""Tests that the migrations match the models, and can be applied and reversed."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from atp import queue
from atp.models import Instance, Type

tables = import_module("atp.migrations.0001_tables")
storage = import_module("atp.migrations.0002_postgresql")
# The tables of an earlier commit, which had other migrations, with one Instance that waits.
EARLIER = Path(__file__).with_name("taken_over")


def storage_parameters():
    """Return the storage parameters of ATP's tables and indexes, in the format of the migration."""
    if connection.vendor != "postgresql":
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, reloptions FROM pg_class"
            " WHERE relname LIKE 'atp%' AND reloptions IS NOT NULL"
        )
        return {name: dict(each.split("=") for each in options) for name, options in cursor}


@pytest.mark.django_db
def test_migrations_match_the_models_and_the_migrate_command_registers_types(capsys):
    call_command("makemigrations", "--check", "--dry-run", "atp")
    assert "No changes" in capsys.readouterr().out
    call_command("migrate", verbosity=0)
    assert Type.objects.filter(identifier="tests.echo").exists()


def schema():
    """Return the columns and the constraints of each table of ATP."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith("atp_"):
                columns = connection.introspection.get_table_description(cursor, table)
                constraints = connection.introspection.get_constraints(cursor, table)
                found[table] = (
                    sorted((each.name, each.type_code, each.null_ok) for each in columns),
                    sorted(
                        (sorted(each["columns"]), each["unique"], each["check"], each["index"])
                        for each in constraints.values()
                    ),
                )
    return found


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_migrations_can_be_reversed_and_upgrade_a_database_of_an_earlier_commit(capsys, atp):
    """Rows are kept, only new migrations are applied, and the tables match a new database.

    On PostgreSQL, the storage parameters are also removed and set again.
    """
    fresh = schema()
    wanted = storage.TABLES | storage.INDEXES if connection.vendor == "postgresql" else {}
    assert storage_parameters() == wanted
    try:
        call_command("migrate", "atp", "0001", verbosity=0)
        assert storage_parameters() == {}
        call_command("migrate", "atp", "zero", verbosity=0)
        assert schema() == {}
        statements = (EARLIER / f"{connection.vendor}.sql").read_text()
        with connection.cursor() as cursor:
            for each in statements.split(";\n"):
                if each.strip():
                    cursor.execute(each)
            for _, name in (*tables.Migration.replaces, *storage.Migration.replaces):
                MigrationRecorder(connection).record_applied("atp", name)
        call_command("migrate", "atp")
        applied = re.findall(r"Applying atp\.(\S+)\.\.\.", capsys.readouterr().out)
        assert applied == ["0003_columns", "0004_usage", "0005_placement", "0006_engine"]
        assert (schema(), storage_parameters()) == (fresh, wanted)
        waiting = Instance.objects.get(identifier="before the upgrade")
        atp.drain()
        assert queue.get(waiting.uuid).response.value == {"value": 7}
        assert [gate.who for gate in queue.gates()] == ["ann"]
    finally:
        call_command("migrate", "atp", "zero", verbosity=0)
        call_command("migrate", verbosity=0)
    assert (schema(), storage_parameters()) == (fresh, wanted)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_migration_gives_enqueue_and_control_to_holders_of_operate():
    """In earlier releases ``operate`` included the permissions to enqueue and to control."""
    own = Permission.objects.filter(content_type__app_label="atp")
    call_command("migrate", "atp", "0002", verbosity=0)
    try:
        own.filter(codename__in=["enqueue", "control"]).delete()
        group = Group.objects.create(name="operators")
        group.permissions.add(own.get(codename="operate"))
        olga = User.objects.create_user("olga")
        olga.user_permissions.add(own.get(codename="operate"))
        other = User.objects.create_user("other")
        other.user_permissions.add(own.get(codename="view_instance"))
    finally:
        call_command("migrate", verbosity=0)
    for holder in (group.permissions, olga.user_permissions):
        assert {each.codename for each in holder.all()} == {"enqueue", "operate", "control"}
    assert {each.codename for each in other.user_permissions.all()} == {"view_instance"}
    assert own.filter(codename__in=["enqueue", "control"]).count() == 2
