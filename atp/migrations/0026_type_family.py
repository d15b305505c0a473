from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0025_graph_undo_pending'),
    ]

    operations = [
        migrations.AddField(
            model_name='type',
            name='family',
            field=models.CharField(blank=True, db_default='', default='', help_text='The same word on the rows of all names of a Type that was renamed.', max_length=200),
        ),
    ]
