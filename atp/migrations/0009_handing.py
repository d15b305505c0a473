# Where an idle daemon can be handed a Task by the one who enqueues it.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0008_fewer_words'),
    ]

    operations = [
        migrations.AddField(
            model_name='daemon',
            name='channel',
            field=models.CharField(blank=True, db_default='', default='', help_text='Where it can be handed a Task.', max_length=63),
        ),
    ]
