# Storage parameters, on PostgreSQL only. docs/design/decisions.md says what each is worth:
# "Storage settings in a migration".

from django.db import migrations

TABLES = {
    # Waiting, claimed, gone: each row is written three times in its life. Room on
    # the page for the claimed version keeps it beside the waiting one. Dead rows are
    # what a claim has to step over, so they are removed early and at full speed.
    "atp_task": {
        "fillfactor": "70",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_cost_delay": "0",
    },
    # Until an Instance has ended, no column that changes is indexed: with room on its
    # page for the version that a claim writes, no index learns of it. With 70 every
    # second claim had to put it elsewhere, and in the end the table was larger:
    # 328 bytes for each that had finished, where it is 265 now.
    "atp_instance": {
        "fillfactor": "45",
        "autovacuum_vacuum_scale_factor": "0.05",
    },
    # Only added to; old records go in chunks.
    "atp_logrecord": {"autovacuum_vacuum_scale_factor": "0.05"},
}

# Indexes that learn of an Instance twice or more: when it is enqueued, at their end, and
# again in the same places when its Task is claimed, when it has ended, and with each record
# of its log. Pages that are left full at the end have to be divided for that.
INDEXES = {
    "atp_instance_pkey": {"fillfactor": "50"},
    "atp_instance_uuid_key": {"fillfactor": "50"},
    "atp_instance_of_type": {"fillfactor": "50"},
    "atp_task_pkey": {"fillfactor": "50"},
    "atp_log_of_instance": {"fillfactor": "25"},
}


def set_storage(apps, schema_editor):
    """Set the storage parameters; databases other than PostgreSQL have none."""
    for relation, settings in _relations(schema_editor):
        given = ", ".join(f"{name} = {value}" for name, value in settings.items())
        schema_editor.execute(f"ALTER {relation} SET ({given})")


def reset_storage(apps, schema_editor):
    """Go back to PostgreSQL's defaults."""
    for relation, settings in _relations(schema_editor):
        schema_editor.execute(f"ALTER {relation} RESET ({', '.join(settings)})")


def _relations(schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        yield from ((f"TABLE {name}", settings) for name, settings in TABLES.items())
        yield from ((f"INDEX IF EXISTS {name}", settings) for name, settings in INDEXES.items())


class Migration(migrations.Migration):
    replaces = [("atp", "0002_postgresql_storage")]

    dependencies = [("atp", "0001_tables")]

    operations = [migrations.RunPython(set_storage, reset_storage)]
