from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0024_instance_failed_reason'),
    ]

    operations = [
        migrations.AddField(
            model_name='graph',
            name='undo_pending',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name='graph',
            index=models.Index(condition=models.Q(('undo_pending', True)), fields=['id'], name='atp_graph_undo_pending'),
        ),
    ]
