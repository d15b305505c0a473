# What is written most, for less. No constraint where the same statement has
# written or locked the row that is referred to; on PostgreSQL storage settings,
# each with its reason.

import django.db.models.deletion
from django.db import migrations, models

SETTINGS = {
    # Waiting, claimed, gone: each row is written three times in its life. Room on
    # the page for the claimed version keeps it beside the waiting one. Dead rows are
    # what a claim has to step over, so they are removed early and at full speed.
    "atp_task": {
        "fillfactor": "70",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_cost_delay": "0",
    },
    # Until an Instance has ended nothing that changes is indexed: with room on its
    # page, a claim or a start is written in place and no index learns of it.
    "atp_instance": {
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.05",
    },
    # Only added to; old records go in chunks.
    "atp_logrecord": {"autovacuum_vacuum_scale_factor": "0.05"},
}


def set_storage(apps, schema_editor):
    """Set PostgreSQL's storage parameters; elsewhere there are none."""
    if schema_editor.connection.vendor != "postgresql":
        return
    for table, settings in SETTINGS.items():
        given = ", ".join(f"{name} = {value}" for name, value in settings.items())
        schema_editor.execute(f"ALTER TABLE {table} SET ({given})")


def reset_storage(apps, schema_editor):
    """Go back to the defaults."""
    if schema_editor.connection.vendor != "postgresql":
        return
    for table, settings in SETTINGS.items():
        schema_editor.execute(f"ALTER TABLE {table} RESET ({', '.join(settings)})")


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0002_lists_and_operate'),
    ]

    operations = [
        migrations.AlterField(
            model_name='inputs',
            name='instance',
            field=models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='atp.instance'),
        ),
        migrations.AlterField(
            model_name='logrecord',
            name='instance',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='atp.instance'),
        ),
        migrations.AlterField(
            model_name='task',
            name='daemon',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='tasks', to='atp.daemon'),
        ),
        migrations.AlterField(
            model_name='task',
            name='instance',
            field=models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='atp.instance'),
        ),
        migrations.AlterField(
            model_name='task',
            name='type',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, to='atp.type'),
        ),
        migrations.RunPython(set_storage, reset_storage),
    ]
