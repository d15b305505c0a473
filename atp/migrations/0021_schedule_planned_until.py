from django.db import migrations, models

import atp.fields


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0020_tailer_losses'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedule',
            name='planned_until',
            field=atp.fields.InstantField(null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='planned_offset',
            field=models.DurationField(null=True),
        ),
    ]
