# Room on the page of each Instance for the version that a claim writes. With less,
# every second claim had to put it elsewhere, every index had to learn of it, and in the
# end the table was larger: 328 bytes for each that had finished, where it is 265 now.

from django.db import migrations


def make_room(apps, schema_editor):
    """Leave more than half of each new page to later versions; on PostgreSQL only."""
    _set(schema_editor, 45)


def take_back(apps, schema_editor):
    """Go back to what 0003 has set."""
    _set(schema_editor, 70)


def _set(schema_editor, percent):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE atp_instance SET (fillfactor = {percent})")


class Migration(migrations.Migration):

    dependencies = [
        ("atp", "0006_lanes"),
    ]

    operations = [
        migrations.RunPython(make_room, take_back),
    ]
