# Where 0010 made a function of the condition of Instance, on PostgreSQL, it becomes a domain,
# which takes less of each enqueue. See atp/constraints.py.

from django.db import migrations

NAME = "atp_instance_valid"


def function_to_domain(apps, schema_editor):
    """Replace the function, if there is one, by what 0010 makes now."""
    instance = apps.get_model("atp", "Instance")
    if schema_editor.connection.vendor != "postgresql" or not _is_function(schema_editor):
        return
    [constraint] = [one for one in instance._meta.constraints if one.name == NAME]
    schema_editor.execute(f"ALTER TABLE atp_instance DROP CONSTRAINT {NAME}")
    schema_editor.execute(f"DROP FUNCTION {NAME} (atp_instance)")
    schema_editor.add_constraint(instance, constraint)


def _is_function(schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT to_regprocedure(%s) IS NOT NULL", [f"{NAME}(atp_instance)"])
        return cursor.fetchone()[0]


class Migration(migrations.Migration):

    dependencies = [
        ("atp", "0012_room_in_indexes"),
    ]

    operations = [
        migrations.RunPython(function_to_domain, migrations.RunPython.noop),
    ]
