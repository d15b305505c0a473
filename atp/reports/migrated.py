"""Check whether the queue's database has the tables that this code needs."""

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ..conf import settings
from ..models import Daemon

_APP = "atp"
# The databases that have Django's table of migrations. To look for it, a server reads much of its
# catalogue, more than for the rest of a probe.
_has_table: set[tuple[str, str]] = set()


def missing(connection: Any = None) -> list[str]:
    """Return the migrations of ATP that have not been applied to the queue's database."""
    recorder = MigrationRecorder(connection or connections[settings.DATABASE])
    database = recorder.connection.alias, str(recorder.connection.settings_dict["NAME"])
    applied: set[str] = set()
    if database in _has_table or recorder.has_table():
        try:
            applied = set(recorder.migration_qs.filter(app=_APP).values_list("name", flat=True))
        except Error:
            _has_table.discard(database)
            raise
        _has_table.add(database)
    return [name for name in _migrations() if name not in applied]


def problem(connection: Any = None) -> str:
    """Return a sentence about missing tables or migrations, "" if none are missing."""
    connection = connection or connections[settings.DATABASE]
    if Daemon._meta.db_table not in connection.introspection.table_names():
        lacks = "ATP's tables are missing"
    elif names := missing(connection):
        lacks = f"Migrations of ATP are not applied ({', '.join(names)})"
    else:
        return ""
    return f"{lacks} in database {connection.alias!r}: run {command(connection.alias)}."


def command(alias: str) -> str:
    """Return the command that makes the tables in a database: without its name, in the default."""
    return "manage.py migrate" + ("" if alias == DEFAULT_DB_ALIAS else f" --database {alias}")


@cache
def _migrations() -> list[str]:
    module, _ = MigrationLoader.migrations_module(_APP)
    if module is None:  # the project has switched them off
        return []
    found = pkgutil.iter_modules(import_module(module).__path__)
    return sorted(each.name for each in found if each.name[0] not in "_~")
