from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0026_type_family'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedule',
            name='hooks',
            field=models.JSONField(help_text='The hooks of its Instances; see atp.store.values.hooks.', null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='start_before',
            field=models.DurationField(help_text='An Instance must start within this time after its slot.', null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='timeout',
            field=models.DurationField(help_text='The time-out of its Instances; null: that of the Type.', null=True),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('outcome__in', ['MISSED', 'SKIPPED'])), fields=['schedule', 'at'], name='atp_slot_not_run'),
        ),
    ]
