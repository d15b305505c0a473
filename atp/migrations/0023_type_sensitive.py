from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("atp", "0022_permissions"),
    ]

    operations = [
        migrations.AddField(
            model_name="type",
            name="sensitive",
            field=models.JSONField(
                help_text="Names of the arguments that are masked wherever inputs are shown.",
                null=True,
            ),
        ),
    ]
