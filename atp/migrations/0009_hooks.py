from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0008_graph_undo'),
    ]

    operations = [
        migrations.AddField(
            model_name='type',
            name='hooks',
            field=models.JSONField(help_text='The hooks to enqueue when an Instance ends; see atp.store.values.hooks.', null=True),
        ),
        migrations.AlterField(
            model_name='task',
            name='waits',
            field=models.IntegerField(help_text='Edges of its node that are not satisfied; -1 if it is no node, and has hooks.', null=True),
        ),
    ]
