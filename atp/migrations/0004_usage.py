"""What the workers of daemons did, by minute; and an index for the history of one Type."""

import atp.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0003_columns'),
    ]

    operations = [
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(60, 'a minute'), (3600, 'an hour'), (0, 'all before')])),
                ('start', atp.fields.InstantField()),
                ('daemon', models.UUIDField(help_text='The uuid that the daemon had when it wrote the row.')),
                ('name', models.CharField(help_text='Its host and pid, as HOST:PID.', max_length=300)),
                ('capacity_us', models.BigIntegerField(help_text='Microseconds of workers, busy or idle.')),
                ('busy_us', models.BigIntegerField(help_text='Microseconds of workers that ran attempts.')),
                ('ended', models.BigIntegerField(help_text='Attempts that ended.')),
                ('memory', models.BigIntegerField(default=0, help_text='The largest sample, in bytes.')),
            ],
        ),
        migrations.AddIndex(
            model_name='statistic',
            index=models.Index(fields=['type', 'span', 'start'], name='atp_statistic_of_type'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(fields=['span', 'start'], name='atp_usage_start'),
        ),
    ]
