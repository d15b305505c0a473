# Graphs: their nodes, and the edges that nodes wait for.

import atp.fields
import atp.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0004_steps'),
    ]

    operations = [
        migrations.CreateModel(
            name='Node',
            fields=[
                ('instance', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='node', serialize=False, to='atp.instance')),
                ('name', models.CharField(max_length=200)),
                ('not_before', atp.fields.InstantField(null=True)),
            ],
            options={
                'ordering': ['graph', 'instance'],
            },
        ),
        migrations.CreateModel(
            name='Graph',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uuid', models.UUIDField(default=atp.fields.uuid7, editable=False, unique=True)),
                ('name', models.CharField(blank=True, default='', max_length=200)),
                ('created', atp.fields.InstantField()),
                ('created_by', models.CharField(blank=True, default='', max_length=200)),
                ('ended', atp.fields.InstantField(null=True)),
                ('request', models.CharField(blank=True, default='', max_length=16)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='task',
            name='waits',
            field=models.IntegerField(help_text='Edges of its node that are not satisfied; null outside graphs.', null=True),
        ),
        migrations.CreateModel(
            name='Failing',
            fields=[
                ('node', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='atp.node')),
            ],
            options={
                'verbose_name_plural': 'failing',
            },
        ),
        migrations.CreateModel(
            name='Edge',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('on', models.CharField(choices=[('finished', 'the upstream node FINISHED; if it fails, the waiting node fails too'), ('ended', 'the upstream node ended: FINISHED or FAILED')], default='finished', max_length=8)),
                ('downstream', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='upstreams', to='atp.node')),
                ('upstream', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='downstreams', to='atp.node')),
            ],
        ),
        migrations.AddField(
            model_name='node',
            name='graph',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='nodes', to='atp.graph'),
        ),
        migrations.AddIndex(
            model_name='graph',
            index=models.Index(condition=models.Q(('ended__isnull', True)), fields=['id'], name='atp_graph_live'),
        ),
        migrations.AddIndex(
            model_name='graph',
            index=models.Index(condition=models.Q(('ended__isnull', False)), fields=['ended'], name='atp_graph_ended'),
        ),
        migrations.AddIndex(
            model_name='edge',
            index=models.Index(fields=['downstream'], name='atp_edge_of_downstream'),
        ),
        migrations.AddConstraint(
            model_name='edge',
            constraint=models.UniqueConstraint(fields=('upstream', 'downstream'), name='atp_edge_once'),
        ),
        migrations.AddConstraint(
            model_name='edge',
            constraint=models.CheckConstraint(condition=models.Q(('upstream', models.F('downstream')), _negated=True), name='atp_edge_of_two_nodes'),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.UniqueConstraint(fields=('graph', 'name'), name='atp_node_name'),
        ),
    ]
