# Lines of schedules: nodes in no graph, for the overlaps "queue" and "cancel".

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0005_graphs'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='node',
            options={'ordering': ['graph_id', 'instance_id']},
        ),
        migrations.AddField(
            model_name='node',
            name='schedule',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='line', to='atp.schedule'),
        ),
        migrations.AlterField(
            model_name='node',
            name='graph',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='nodes', to='atp.graph'),
        ),
        migrations.AlterField(
            model_name='schedule',
            name='most',
            field=models.PositiveIntegerField(default=100, help_text='Most missed slots to run; most Instances to wait in line.'),
        ),
        migrations.AlterField(
            model_name='schedule',
            name='overlap',
            field=models.CharField(choices=[('allow', 'run beside it'), ('skip', 'skip the slot'), ('queue', 'wait until it has ended'), ('cancel', 'cancel it, and wait until it has ended')], default='allow', max_length=6),
        ),
        migrations.AddIndex(
            model_name='node',
            index=models.Index(condition=models.Q(('graph__isnull', True)), fields=['schedule'], name='atp_node_line'),
        ),
    ]
