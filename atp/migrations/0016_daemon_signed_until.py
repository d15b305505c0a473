from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0015_downstream'),
    ]

    operations = [
        migrations.AddField(
            model_name='daemon',
            name='signed_until',
            field=models.BigIntegerField(help_text='Later LogRecords with its host and pid are those of its successor.', null=True),
        ),
    ]
