
import atp.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0014_max_waiting'),
    ]

    operations = [
        migrations.CreateModel(
            name='Downstream',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200, unique=True)),
                ('state', models.CharField(choices=[('closed', 'closed'), ('throttled', 'throttled'), ('open', 'open'), ('half-open', 'half-open')], default='closed', max_length=9)),
                ('per_second', models.FloatField(default=0.0, help_text='Calls a second, while throttled.')),
                ('tokens', models.FloatField(default=0.0)),
                ('refilled', atp.fields.InstantField(null=True)),
                ('last_max', models.FloatField(default=0.0, help_text='The rate at the last refusal.')),
                ('window', models.JSONField(default=dict, help_text='Calls in the last 5 s.')),
                ('adjusted_at', atp.fields.InstantField(null=True)),
                ('decreased_at', atp.fields.InstantField(null=True)),
                ('trips', models.PositiveIntegerField(default=0, help_text='Outages in a row.')),
                ('not_before', atp.fields.InstantField(help_text='Handlers make no calls before this time.', null=True)),
                ('probe', models.BigIntegerField(help_text='The key of the Instance that probes.', null=True)),
                ('ceiling', models.FloatField(help_text='The highest rate, set by hand.', null=True)),
                ('floor', models.FloatField(help_text='The lowest rate, set by hand.', null=True)),
                ('who', models.CharField(blank=True, default='', max_length=200)),
                ('since', atp.fields.InstantField(help_text='When the state changed.')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='type',
            name='downstream',
            field=models.CharField(blank=True, db_default='', default='', help_text='The name of the downstream that its handler calls.', max_length=200),
        ),
    ]
