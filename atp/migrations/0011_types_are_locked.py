# No constraint on Instance.type: who enqueues locks the Type, once for all that he enqueues.
# See "Six foreign keys without a constraint" in docs/design/decisions.md.

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0010_valid'),
    ]

    operations = [
        migrations.AlterField(
            model_name='instance',
            name='type',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='instances', to='atp.type'),
        ),
    ]
