# Steps: the checkpoints of handlers.

import atp.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0003_schedules'),
    ]

    operations = [
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('attempt', models.IntegerField()),
                ('started', atp.fields.InstantField()),
                ('finished', atp.fields.InstantField(null=True)),
                ('until', atp.fields.InstantField(help_text='When a sleep is over; null for other steps.', null=True)),
                ('format', models.CharField(default='json', max_length=8)),
                ('data', models.TextField(null=True)),
                ('instance', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='atp.instance')),
            ],
            options={
                'ordering': ['instance', 'pk'],
            },
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(fields=('instance', 'name'), name='atp_step_once'),
        ),
    ]
