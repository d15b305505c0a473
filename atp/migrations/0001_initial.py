# The tables of the house plan, section 3.

import atp.fields
import atp.uuids
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Daemon',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uuid', models.UUIDField(unique=True)),
                ('host', models.CharField(max_length=255)),
                ('pid', models.PositiveIntegerField()),
                ('version', models.CharField(max_length=32)),
                ('types', models.JSONField(default=list, help_text='Identifiers of the Types it serves.')),
                ('workers', models.JSONField(default=list, help_text='pid, Instance and since when, per worker.')),
                ('lock', models.CharField(blank=True, default='', max_length=255)),
                ('lease_until', atp.fields.InstantField()),
                ('idle', models.BooleanField(default=False)),
                ('request', models.CharField(blank=True, default='', max_length=16)),
                ('started', atp.fields.InstantField()),
                ('seen', atp.fields.InstantField()),
            ],
        ),
        migrations.CreateModel(
            name='Instance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uuid', models.UUIDField(default=atp.uuids.uuid7, editable=False, unique=True)),
                ('identifier', models.CharField(help_text="The caller's idempotency key.", max_length=200, null=True)),
                ('state', models.CharField(choices=[('ACCEPTED', 'accepted'), ('SCHEDULED', 'scheduled'), ('RUNNING', 'running'), ('PAUSED', 'paused'), ('FINISHED', 'finished'), ('FAILED', 'failed')], max_length=9)),
                ('reason', models.CharField(blank=True, choices=[('ERROR', 'the handler raised and its retries are used up'), ('FATAL', 'the handler said that trying again is no use'), ('STALE', 'its attempts were lost more often than allowed'), ('CANCELLED', 'somebody asked for it'), ('DROPPED', 'a gate dropped it'), ('MISSED', 'not started before its start_before'), ('UPSTREAM', 'what it depends on failed')], default='', max_length=9)),
                ('collection', models.CharField(blank=True, default='', max_length=200)),
                ('priority', models.SmallIntegerField(default=0)),
                ('attempt', models.PositiveIntegerField(default=0, help_text='Claims so far; the fence.')),
                ('restarts', models.PositiveIntegerField(default=0, help_text='Attempts lost while running.')),
                ('retries', models.PositiveIntegerField(default=0, help_text='Attempts that raised.')),
                ('lost', models.PositiveIntegerField(default=0, help_text='Attempts lost in all.')),
                ('progress', models.FloatField(help_text='From 0 to 1; null when unknown.', null=True)),
                ('progress_message', models.CharField(blank=True, default='', max_length=200)),
                ('start_before', atp.fields.InstantField(null=True)),
                ('created_by', models.CharField(blank=True, default='', max_length=200)),
                ('created', atp.fields.InstantField()),
                ('started', atp.fields.InstantField(help_text='When the last attempt started.', null=True)),
                ('finished', atp.fields.InstantField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Type',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identifier', models.CharField(max_length=200, unique=True)),
                ('handler', models.CharField(help_text='For display: a daemon runs the function that its own code declares.', max_length=255)),
                ('timeout', models.DurationField(help_text='A running attempt is killed after this.', null=True)),
                ('max_restarts', models.PositiveIntegerField(help_text='Attempts that may be lost while running.')),
                ('max_retries', models.PositiveIntegerField(help_text='Attempts that may raise and try again.')),
                ('backoff', models.DurationField(help_text='Delay before the first retry.')),
                ('backoff_max', models.DurationField(help_text='Longest delay before a retry.')),
                ('retention', models.DurationField(help_text='Terminal Instances are kept this long.', null=True)),
                ('serializer', models.CharField(default='json', max_length=16)),
                ('registered', atp.fields.InstantField(help_text='When the parameters were last changed.')),
            ],
            options={
                'ordering': ['identifier'],
            },
        ),
        migrations.CreateModel(
            name='Inputs',
            fields=[
                ('instance', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='atp.instance')),
                ('format', models.CharField(default='json', max_length=8)),
                ('data', models.TextField()),
            ],
            options={
                'verbose_name_plural': 'inputs',
            },
        ),
        migrations.CreateModel(
            name='Response',
            fields=[
                ('instance', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='response', serialize=False, to='atp.instance')),
                ('content_type', models.CharField(blank=True, default='', max_length=127)),
                ('data', models.BinaryField(null=True)),
                ('file', models.CharField(blank=True, default='', max_length=255)),
                ('size', models.PositiveBigIntegerField(default=0, help_text='Bytes of the output.')),
                ('files', models.JSONField(default=list)),
            ],
        ),
        migrations.AddField(
            model_name='instance',
            name='type',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='instances', to='atp.type'),
        ),
        migrations.CreateModel(
            name='Task',
            fields=[
                ('instance', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='atp.instance')),
                ('collection', models.CharField(blank=True, default='', max_length=200)),
                ('priority', models.SmallIntegerField(default=0)),
                ('due_at', atp.fields.InstantField()),
                ('start_before', atp.fields.InstantField(null=True)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('request', models.CharField(blank=True, default='', max_length=16)),
                ('daemon', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='tasks', to='atp.daemon')),
                ('type', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='atp.type')),
            ],
        ),
        migrations.CreateModel(
            name='LogRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(blank=True, default='', max_length=255)),
                ('time', atp.fields.InstantField()),
                ('event', models.CharField(blank=True, default='', max_length=8)),
                ('state', models.CharField(blank=True, default='', help_text='After the event.', max_length=9)),
                ('attempt', models.PositiveIntegerField(null=True)),
                ('level', models.PositiveSmallIntegerField(help_text='As in the logging module.')),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('message', models.TextField(blank=True, default='')),
                ('instance', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, to='atp.instance')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('instance__isnull', True)), fields=['subject'], name='atp_log_subject')],
            },
        ),
        migrations.AddIndex(
            model_name='instance',
            index=models.Index(models.F('type'), models.OrderBy(models.F('id'), descending=True), name='atp_instance_of_type'),
        ),
        migrations.AddIndex(
            model_name='instance',
            index=models.Index(condition=models.Q(('finished__isnull', False)), fields=['type', 'finished'], name='atp_instance_terminal'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.UniqueConstraint(condition=models.Q(('identifier__isnull', False)), fields=('type', 'identifier'), name='atp_instance_identifier'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['ACCEPTED', 'SCHEDULED', 'RUNNING', 'PAUSED', 'FINISHED', 'FAILED'])), name='atp_instance_state'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('reason__in', ['ERROR', 'FATAL', 'STALE', 'CANCELLED', 'DROPPED', 'MISSED', 'UPSTREAM']), ('state', 'FAILED')), models.Q(models.Q(('state', 'FAILED'), _negated=True), ('reason', '')), _connector='OR'), name='atp_instance_reason'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished__isnull', False), ('state__in', ['FAILED', 'FINISHED'])), models.Q(models.Q(('state__in', ['FAILED', 'FINISHED']), _negated=True), ('finished__isnull', True)), _connector='OR'), name='atp_instance_finished'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=models.Q(('priority__gte', -100), ('priority__lte', 100)), name='atp_instance_priority'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(models.F('type'), models.OrderBy(models.F('priority'), descending=True), models.F('due_at'), models.F('instance'), condition=models.Q(('daemon__isnull', True)), name='atp_task_claim'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('daemon__isnull', False)), fields=['daemon'], name='atp_task_held'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('daemon__isnull', True), ('start_before__isnull', False)), fields=['start_before'], name='atp_task_missed'),
        ),
    ]
