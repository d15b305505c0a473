"""What a queue writes, written without one: plain SQL by keys, on the driver's own connection.

It guards nothing and asks for nothing. How fast that is, on the project's own
tables, is what the queue can be measured by.
"""

from importlib import import_module


def raw_queue(identifier):
    """Return the raw queue of this process's database, for Instances of a Type."""
    from django.db import connection

    from atp.models import Type

    connection.ensure_connection()
    module = import_module(f".{connection.vendor}", __package__)
    type_id = Type.objects.get(identifier=identifier).pk
    return module.RawQueue(connection.connection, type_id)
