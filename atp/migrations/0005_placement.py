"""Where a Type runs: its needs and resources, and the labels and the capacity of daemons."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0004_usage'),
    ]

    operations = [
        migrations.AddField(
            model_name='daemon',
            name='capacity',
            field=models.JSONField(db_default={}, default=dict, help_text='The resources of its host: amounts by name.'),
        ),
        migrations.AddField(
            model_name='daemon',
            name='labels',
            field=models.JSONField(db_default={}, default=dict, help_text='The labels of its host, by name.'),
        ),
        migrations.AddField(
            model_name='type',
            name='needs',
            field=models.JSONField(help_text='The labels that a daemon must have to run it, by name.', null=True),
        ),
        migrations.AddField(
            model_name='type',
            name='resources',
            field=models.JSONField(help_text='The amounts of resources that each of its attempts takes, by name.', null=True),
        ),
    ]
