"""Ways to break a queue, which no verb has, for what is to find and mend it."""

from datetime import timedelta

from django.db import connection

from atp.conf import settings
from atp.models import Daemon, LogRecord, Task

# Longer than what a scan calls long.
LONG = timedelta(seconds=max(settings.SCAN_AFTER, settings.LEASE) + 10)


def age(*keys, time=LONG):
    """What has happened to these Instances, happened long ago."""
    for record in LogRecord.objects.filter(instance__in=keys):
        LogRecord.objects.filter(pk=record.pk).update(time=record.time - time)
    for task in Task.objects.filter(pk__in=keys):
        Task.objects.filter(pk=task.pk).update(due_at=task.due_at - time)


def settle(host, *, idle=True):
    """The daemon has been there for long, and has nothing to do."""
    host.world.store.daemons.renew(host.uuid, lease=30, idle=idle)
    row = host.row
    Daemon.objects.filter(pk=row.pk).update(started=row.started - LONG)


def put_back(world, case, host):
    Task.objects.create(
        instance_id=case.instance,
        type_id=world.get(case.instance).type_id,
        due_at=world.store.now(),
        attempt=case.number,
        daemon=host.row if host else None,
    )


def execute(statement, *parameters):
    """What a hand in the database does: no model keeps it from anything."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)


def delete_instance(key, *tables):
    """Delete an Instance by hand, with what these tables have of it."""
    for table in tables:
        execute(f"DELETE FROM atp_{table} WHERE instance_id = %s", key)
    execute("DELETE FROM atp_instance WHERE id = %s", key)
