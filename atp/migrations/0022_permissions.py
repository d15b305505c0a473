"""Add the permissions to enqueue and to control, which ``atp.operate`` covered before.

Users and groups that have ``operate`` get both, so that nobody loses anything. Django makes the rows
of permissions after it has migrated: where ``operate`` has none yet, nobody has it. If the queue has
a database alias of its own, the users are in another database, and have to be given them by hand.
"""

from django.apps import apps as installed
from django.db import migrations

NEW = {
    "enqueue": "Can enqueue Instances",
    "control": "Can control gates, limits, downstreams, schedules, tailers, daemons",
}


def grant(apps, schema_editor):
    alias = schema_editor.connection.alias
    if not installed.is_installed("django.contrib.auth"):
        return
    Permission = installed.get_model("auth", "Permission")
    if Permission._meta.db_table not in schema_editor.connection.introspection.table_names():
        return
    permissions = Permission.objects.using(alias)
    operate = permissions.filter(content_type__app_label="atp", codename="operate").first()
    if operate is None:
        return
    # The model of users may be the project's own, without permissions or with more columns than
    # its table has by now: only keys are read.
    holders = [name for name in ("group_set", "user_set") if hasattr(operate, name)]
    for codename, name in NEW.items():
        new, _ = permissions.get_or_create(
            content_type_id=operate.content_type_id, codename=codename, defaults={"name": name}
        )
        for each in holders:
            getattr(new, each).add(*getattr(operate, each).values_list("pk", flat=True))


class Migration(migrations.Migration):

    dependencies = [
        ("atp", "0021_schedule_planned_until"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="instance",
            options={
                "permissions": [
                    ("enqueue", "Can enqueue Instances"),
                    ("operate", "Can operate: redrive, cancel, pause, change"),
                    (
                        "control",
                        "Can control gates, limits, downstreams, schedules, tailers, daemons",
                    ),
                ],
            },
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
