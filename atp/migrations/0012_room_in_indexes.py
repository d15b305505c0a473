# Room in the indexes that learn of an Instance twice or more: when it is enqueued, which is at
# their end, and again in the same places when its Task is claimed, when it has ended, and with
# each record of its log. Pages that are left full at the end have to be divided for that.

from django.db import migrations

# How full pages are left at the end, in percent, by index.
ROOM = {
    "atp_instance_pkey": 50,
    "atp_instance_uuid_key": 50,
    "atp_instance_of_type": 50,
    "atp_task_pkey": 50,
    "atp_log_of_instance": 25,
}


def make_room(apps, schema_editor):
    """Leave room on the last pages; on PostgreSQL only."""
    for name, percent in ROOM.items():
        _set(schema_editor, name, f"SET (fillfactor = {percent})")


def take_back(apps, schema_editor):
    """Go back to PostgreSQL's own 90."""
    for name in ROOM:
        _set(schema_editor, name, "RESET (fillfactor)")


def _set(schema_editor, name, what):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER INDEX IF EXISTS {schema_editor.quote_name(name)} {what}")


class Migration(migrations.Migration):

    dependencies = [
        ("atp", "0011_types_are_locked"),
    ]

    operations = [
        migrations.RunPython(make_room, take_back),
    ]
