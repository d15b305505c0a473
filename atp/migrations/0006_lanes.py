# Lanes: the index that a claim walks has the collection in it, that of what is held too.
# Gates and limits, in tables of their own: empty where nobody uses them.

import atp.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0005_daemon_modes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Gate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(max_length=408, unique=True)),
                ('collection', models.CharField(max_length=200, null=True)),
                ('mode', models.CharField(choices=[('hold', 'hold'), ('drop', 'drop')], max_length=4)),
                ('reason', models.CharField(blank=True, default='', max_length=200)),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('since', atp.fields.InstantField()),
                ('until', atp.fields.InstantField(help_text='When it opens by itself.', null=True)),
            ],
            options={
                'ordering': ['subject'],
            },
        ),
        migrations.CreateModel(
            name='Limit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(max_length=408, unique=True)),
                ('collection', models.CharField(max_length=200, null=True)),
                ('max_running', models.PositiveIntegerField(help_text='Claimed at any time.', null=True)),
                ('rate', models.CharField(blank=True, default='', help_text='As "100/m".', max_length=32)),
                ('per_second', models.FloatField(help_text='The rate in tasks a second.', null=True)),
                ('burst', models.PositiveIntegerField(default=1, help_text='At once, after a pause.')),
                ('weight', models.FloatField(default=1.0, help_text='Share beside other Types.')),
                ('tokens', models.FloatField(default=0.0)),
                ('refilled', atp.fields.InstantField(null=True)),
                ('is_set', models.BooleanField(default=False, help_text='By an operator.')),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('since', atp.fields.InstantField()),
            ],
            options={
                'ordering': ['subject'],
            },
        ),
        migrations.RemoveIndex(
            model_name='task',
            name='atp_task_claim',
        ),
        migrations.RemoveIndex(
            model_name='task',
            name='atp_task_held',
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(models.F('type'), models.F('collection'), models.OrderBy(models.F('priority'), descending=True), models.F('due_at'), models.F('instance'), condition=models.Q(('daemon__isnull', True)), name='atp_task_claim'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('daemon__isnull', False)), fields=['daemon', 'type', 'collection'], name='atp_task_held'),
        ),
        migrations.AddField(
            model_name='gate',
            name='type',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='atp.type'),
        ),
        migrations.AddField(
            model_name='limit',
            name='type',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='limits', to='atp.type'),
        ),
    ]
