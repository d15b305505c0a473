"""What a daemon knows of the engine that runs its attempts."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0005_placement'),
    ]

    operations = [
        migrations.AddField(
            model_name='daemon',
            name='engine',
            field=models.JSONField(db_default={}, default=dict, help_text='What is known of the engine of its executor.'),
        ),
    ]
