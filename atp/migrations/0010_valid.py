# One condition for all that the database refuses of an Instance; on PostgreSQL in a domain,
# since a condition is read anew in every statement. See atp/constraints.py.

import atp.constraints
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0009_handing'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_outcome',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_ended',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_urgency',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_counts',
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=atp.constraints.CheckByDomain(condition=models.Q(models.Q(models.Q(('reason', ''), ('state__in', ['ACCEPTED', 'SCHEDULED', 'RUNNING', 'PAUSED', 'FINISHED'])), models.Q(('reason__in', ['ERROR', 'FATAL', 'STALE', 'CANCELLED', 'DROPPED', 'MISSED', 'UPSTREAM']), ('state', 'FAILED')), _connector='OR'), models.Q(models.Q(models.Q(('state__in', ['FAILED', 'FINISHED'])), ('finished__isnull', False)), models.Q(models.Q(('state__in', ['FAILED', 'FINISHED']), _negated=True), ('finished__isnull', True)), _connector='OR'), ('priority__gte', -100), ('priority__lte', 100), ('attempt__gte', 0), ('lost__gte', 0), ('restarts__gte', 0), ('retries__gte', 0)), name='atp_instance_valid'),
        ),
    ]
