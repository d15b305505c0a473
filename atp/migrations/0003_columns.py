"""The columns, indexes and permissions that came after the tables.

``atp.operate`` once covered the permissions to enqueue and to control. Users and groups that have
``operate`` get both, so that nobody loses anything. Django makes the rows of permissions after it
has migrated: where ``operate`` has none yet, nobody has it. If the queue has a database alias of its
own, the users are in another database: give them the permissions by hand.
"""

import atp.fields
from django.apps import apps as installed
from django.db import migrations, models

NEW = {
    "enqueue": "Can enqueue Instances",
    "control": "Can control gates, limits, downstreams, schedules, tailers, daemons",
}


def grant(apps, schema_editor):
    alias = schema_editor.connection.alias
    if not installed.is_installed("django.contrib.auth"):
        return
    Permission = installed.get_model("auth", "Permission")
    if Permission._meta.db_table not in schema_editor.connection.introspection.table_names():
        return
    permissions = Permission.objects.using(alias)
    operate = permissions.filter(content_type__app_label="atp", codename="operate").first()
    if operate is None:
        return
    # The model of users may be the project's own, without permissions or with more columns than
    # its table has by now: only keys are read.
    holders = [name for name in ("group_set", "user_set") if hasattr(operate, name)]
    for codename, name in NEW.items():
        new, _ = permissions.get_or_create(
            content_type_id=operate.content_type_id, codename=codename, defaults={"name": name}
        )
        for each in holders:
            getattr(new, each).add(*getattr(operate, each).values_list("pk", flat=True))


class Migration(migrations.Migration):

    # Databases that have these already are taken over as they are.
    replaces = [
        ('atp', '0020_tailer_losses'),
        ('atp', '0021_schedule_planned_until'),
        ('atp', '0022_permissions'),
        ('atp', '0023_type_sensitive'),
        ('atp', '0024_instance_failed_reason'),
        ('atp', '0025_graph_undo_pending'),
        ('atp', '0026_type_family'),
        ('atp', '0027_schedule_options'),
    ]

    dependencies = [
        ('atp', '0002_postgresql'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='instance',
            options={'permissions': [('enqueue', 'Can enqueue Instances'), ('operate', 'Can operate: redrive, cancel, pause, change'), ('control', 'Can control gates, limits, downstreams, schedules, tailers, daemons')]},
        ),
        migrations.AddField(
            model_name='graph',
            name='undo_pending',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='schedule',
            name='hooks',
            field=models.JSONField(help_text='The hooks of its Instances; see atp.store.values.', null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='planned_offset',
            field=models.DurationField(null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='planned_until',
            field=atp.fields.InstantField(null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='start_before',
            field=models.DurationField(help_text='An Instance must start within this time after its slot.', null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='timeout',
            field=models.DurationField(help_text='The time-out of its Instances; null: that of the Type.', null=True),
        ),
        migrations.AddField(
            model_name='tailer',
            name='error',
            field=models.TextField(blank=True, default='', help_text='Why the tailer stopped itself; empty after a good look.'),
        ),
        migrations.AddField(
            model_name='tailer',
            name='gaps',
            field=models.BigIntegerField(default=0, help_text='Times that records were lost, also where their number is unknown.'),
        ),
        migrations.AddField(
            model_name='tailer',
            name='lost',
            field=models.BigIntegerField(default=0, help_text='Records that the source removed before they were read.'),
        ),
        migrations.AddField(
            model_name='tailer',
            name='lost_at',
            field=atp.fields.InstantField(help_text='When records were found to be lost last.', null=True),
        ),
        migrations.AddField(
            model_name='tailer',
            name='notes',
            field=models.TextField(blank=True, default='', help_text='What is skipped, and what waits: a line for each kind.'),
        ),
        migrations.AddField(
            model_name='tailer',
            name='passed_over',
            field=models.BigIntegerField(default=0, help_text='Records that cannot be read, and that the cursor has passed over.'),
        ),
        migrations.AddField(
            model_name='tailer',
            name='skipped',
            field=models.BigIntegerField(default=0, help_text='What is in the source now and cannot be read.'),
        ),
        migrations.AddField(
            model_name='type',
            name='family',
            field=models.CharField(blank=True, db_default='', default='', help_text='The same word on the rows of all names of a Type that was renamed.', max_length=200),
        ),
        migrations.AddField(
            model_name='type',
            name='sensitive',
            field=models.JSONField(help_text='Names of the arguments that are masked wherever inputs are shown.', null=True),
        ),
        migrations.AddIndex(
            model_name='graph',
            index=models.Index(condition=models.Q(('undo_pending', True)), fields=['id'], name='atp_graph_undo_pending'),
        ),
        migrations.AddIndex(
            model_name='instance',
            index=models.Index(condition=models.Q(('finished__isnull', False), ('reason__gt', '')), fields=['type', 'reason', 'id'], name='atp_instance_failed_reason'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('outcome__in', ['MISSED', 'SKIPPED'])), fields=['schedule', 'at'], name='atp_slot_not_run'),
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
