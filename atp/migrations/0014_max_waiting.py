from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0013_errorgroup'),
    ]

    operations = [
        migrations.AddField(
            model_name='limit',
            name='max_waiting',
            field=models.PositiveIntegerField(help_text='Waiting at any time; then an enqueue is refused.', null=True),
        ),
        migrations.AddField(
            model_name='limit',
            name='max_wait',
            field=models.DurationField(help_text='The oldest due one; an enqueue is refused if it has waited longer.', null=True),
        ),
    ]
