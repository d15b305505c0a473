from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0016_daemon_signed_until'),
    ]

    operations = [
        migrations.AddField(
            model_name='type',
            name='owner',
            field=models.CharField(blank=True, db_default='', default='', help_text='Who looks after it.', max_length=200),
        ),
        migrations.AddField(
            model_name='type',
            name='runbook',
            field=models.CharField(blank=True, db_default='', default='', help_text='The address of a page that says what to do about its failures.', max_length=500),
        ),
    ]
