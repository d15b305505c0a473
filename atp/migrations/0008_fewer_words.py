# The same constraints in fewer words: PostgreSQL reads their text anew in every statement
# that writes to the table. See atp/constraints.py.

import django.db.models.expressions
import django.db.models.functions.math
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('atp', '0007_room_for_claims'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_state',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_reason',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_finished',
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='atp_instance_priority',
        ),
        migrations.AlterField(
            model_name='instance',
            name='attempt',
            field=models.IntegerField(default=0, help_text='Claims so far; the fence.'),
        ),
        migrations.AlterField(
            model_name='instance',
            name='lost',
            field=models.IntegerField(default=0, help_text='Attempts lost in all.'),
        ),
        migrations.AlterField(
            model_name='instance',
            name='restarts',
            field=models.IntegerField(default=0, help_text='Attempts lost while running.'),
        ),
        migrations.AlterField(
            model_name='instance',
            name='retries',
            field=models.IntegerField(default=0, help_text='Attempts that raised.'),
        ),
        migrations.AlterField(
            model_name='logrecord',
            name='attempt',
            field=models.IntegerField(null=True),
        ),
        migrations.AlterField(
            model_name='logrecord',
            name='level',
            field=models.SmallIntegerField(help_text='As in the logging module.'),
        ),
        migrations.AlterField(
            model_name='task',
            name='attempt',
            field=models.IntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.GreaterThan(django.db.models.functions.text.StrIndex(models.Value(' ACCEPTED. SCHEDULED. RUNNING. PAUSED. FINISHED. FAILED.ERROR FAILED.FATAL FAILED.STALE FAILED.CANCELLED FAILED.DROPPED FAILED.MISSED FAILED.UPSTREAM '), django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.Value(' '), '||', models.F('state'), output_field=models.TextField()), '||', models.Value('.'), output_field=models.TextField()), '||', models.F('reason'), output_field=models.TextField()), '||', models.Value(' '), output_field=models.TextField())), 0), name='atp_instance_outcome'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=django.db.models.expressions.CombinedExpression(models.ExpressionWrapper(models.Q(('finished__isnull', True)), output_field=models.BooleanField()), '<>', models.ExpressionWrapper(models.Q(('state__startswith', 'F')), output_field=models.BooleanField()), output_field=models.BooleanField()), name='atp_instance_ended'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(django.db.models.functions.math.Abs('priority'), 100), name='atp_instance_urgency'),
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.GreaterThanOrEqual(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('attempt'), '|', models.F('restarts')), '|', models.F('retries')), '|', models.F('lost')), 0), name='atp_instance_counts'),
        ),
    ]
