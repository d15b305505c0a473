from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0009_hooks'),
    ]

    operations = [
        migrations.AddField(
            model_name='daemon',
            name='release',
            field=models.CharField(blank=True, db_default='', default='', help_text='The release of the project.', max_length=64),
        ),
        migrations.AddField(
            model_name='daemon',
            name='signatures',
            field=models.JSONField(db_default={}, default=dict, help_text="Hashes of handlers' signatures, by Type."),
        ),
        migrations.AddField(
            model_name='daemon',
            name='misfits',
            field=models.JSONField(db_default={}, default=dict, help_text='Instances whose inputs did not fit, by Type.'),
        ),
    ]
