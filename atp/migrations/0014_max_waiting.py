from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0013_errorgroup'),
    ]

    operations = [
        migrations.AddField(
            model_name='limit',
            name='max_waiting',
            field=models.PositiveIntegerField(help_text='Tasks that may wait at a time; with more, enqueues are refused.', null=True),
        ),
        migrations.AddField(
            model_name='limit',
            name='max_wait',
            field=models.DurationField(help_text='Enqueues are refused only if the oldest due Task has waited longer.', null=True),
        ),
    ]
