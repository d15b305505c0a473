# Schedules and their slots.

import atp.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0002_postgresql_storage'),
    ]

    operations = [
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identifier', models.CharField(max_length=200, unique=True)),
                ('format', models.CharField(default='json', max_length=16)),
                ('data', models.TextField(default='{}')),
                ('takes_slot', models.BooleanField(default=False, help_text='Whether its handler has a parameter for the slot.')),
                ('collection', models.CharField(blank=True, default='', max_length=200)),
                ('priority', models.IntegerField(default=0)),
                ('cron', models.CharField(blank=True, default='', max_length=200)),
                ('every', models.DurationField(help_text='Aligned to the Unix epoch.', null=True)),
                ('timezone', models.CharField(default='UTC', max_length=64)),
                ('missed', models.CharField(choices=[('skip', 'run none of them'), ('one', 'run the newest of them'), ('all', 'run the newest of them, up to a number')], default='one', max_length=4)),
                ('most', models.PositiveIntegerField(default=100, help_text='Missed slots that are run.')),
                ('window', models.DurationField(help_text='Missed slots that are older are not run.')),
                ('late_after', models.DurationField(help_text='A slot is missed if no daemon planned it within this time.')),
                ('overlap', models.CharField(choices=[('allow', 'run beside it'), ('skip', 'skip the slot')], default='allow', max_length=5)),
                ('jitter', models.DurationField(help_text='A slot is planned up to this much after its time.')),
                ('next_at', atp.fields.InstantField(null=True)),
                ('due_at', atp.fields.InstantField(null=True)),
                ('last_id', models.BigIntegerField(help_text='The key of the last Instance.', null=True)),
                ('paused_since', atp.fields.InstantField(null=True)),
                ('paused_until', atp.fields.InstantField(null=True)),
                ('paused_by', models.CharField(blank=True, default='', max_length=200)),
                ('paused_reason', models.CharField(blank=True, default='', max_length=200)),
                ('declared', models.JSONField(null=True)),
                ('is_set', models.BooleanField(default=False, help_text='Whether an operator has made or edited it.')),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('since', atp.fields.InstantField(help_text='When it was last changed.')),
                ('revision', models.PositiveIntegerField(default=1)),
                ('retired', atp.fields.InstantField(help_text='Since when no code declares it.', null=True)),
                ('trouble', models.TextField(blank=True, default='')),
                ('type', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='schedules', to='atp.type')),
            ],
            options={
                'ordering': ['identifier'],
            },
        ),
        migrations.CreateModel(
            name='Slot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', atp.fields.InstantField()),
                ('until', atp.fields.InstantField(null=True)),
                ('count', models.PositiveIntegerField(default=1)),
                ('is_more', models.BooleanField(default=False, help_text='There were more slots than were counted.')),
                ('outcome', models.CharField(choices=[('ENQUEUED', 'an Instance was enqueued'), ('SKIPPED', 'the last Instance had not ended'), ('MISSED', 'nobody planned it in time'), ('PAUSED', 'the schedule was paused')], max_length=8)),
                ('instance_id', models.BigIntegerField(null=True)),
                ('decided', atp.fields.InstantField()),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('message', models.CharField(blank=True, default='', max_length=400)),
                ('schedule', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='atp.schedule')),
            ],
            options={
                'ordering': ['schedule', '-at'],
            },
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at'], name='atp_schedule_due'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.UniqueConstraint(fields=('schedule', 'at'), name='atp_slot_once'),
        ),
    ]
