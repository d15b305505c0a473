from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0023_type_sensitive'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='instance',
            index=models.Index(condition=models.Q(('finished__isnull', False), ('reason__gt', '')), fields=['type', 'reason', 'id'], name='atp_instance_failed_reason'),
        ),
    ]
