"""Checks that every operation makes first: a valid actor, and a migrated database."""

import pkgutil
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, ProgrammingError, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ..conf import settings
from ..exceptions import InvalidOption, NotMigrated
from ..models import Daemon
from ..options import MAX_IDENTIFIER

F = TypeVar("F", bound=Callable[..., Any])

_APP = "atp"
# The databases, by alias and name, that have Django's table of migrations. The search for that
# table makes a server read much of its catalogue, more than the rest of a probe does.
_has_table: set[tuple[str, str]] = set()


def check_actor(by: object) -> None:
    """Raise InvalidOption unless ``by``, which names the actor, is text that the log can store."""
    if not isinstance(by, str):
        raise InvalidOption(f"by={by!r}: must be text that names the actor and the channel.")
    if len(by) > MAX_IDENTIFIER or "\x00" in by:
        raise InvalidOption(f"by: must be text of at most {MAX_IDENTIFIER} characters.")
    try:
        by.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"by={by!r}: must be valid Unicode text.") from None


# The tables of the queue's database


def needs_tables(operation: F) -> F:
    """Make a function raise NotMigrated if it fails because ATP's tables are missing."""

    @wraps(operation)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return operation(*args, **kwargs)
        except (OperationalError, ProgrammingError) as error:
            if lacks := describe_cause(error):
                raise NotMigrated(lacks) from error
            raise

    return cast(F, translated)


def describe_cause(error: BaseException) -> str:
    """Return a sentence about missing tables if they caused a database error, otherwise ""."""
    if not isinstance(error, ProgrammingError) and not _is_about_missing_tables(error):
        return ""
    alias = settings.DATABASE
    try:
        return describe_missing_tables()
    except Error:
        # The caller's transaction is broken and accepts no more queries.
        if "atp_" not in str(error):
            return ""
        lacks = "ATP's tables are missing, or older than this code,"
        return f"{lacks} in database {alias!r}: run {migrate_command(alias)}."


def _is_about_missing_tables(error: BaseException) -> bool:
    """Return True if an error of SQLite reports a missing table or column, not a lock."""
    text = str(error)
    return isinstance(error, OperationalError) and (
        text.startswith(("no such table", "no such column")) or " has no column named " in text
    )


def missing_migrations(connection: Any = None) -> list[str]:
    """Return the names of ATP's migrations that are not applied to the queue's database."""
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


def describe_missing_tables(connection: Any = None) -> str:
    """Return a sentence about ATP's missing tables or migrations; "" if none are missing."""
    connection = connection or connections[settings.DATABASE]
    if Daemon._meta.db_table not in connection.introspection.table_names():
        lacks = "ATP's tables are missing"
    elif names := missing_migrations(connection):
        lacks = f"Migrations of ATP are not applied ({', '.join(names)})"
    else:
        return ""
    return f"{lacks} in database {connection.alias!r}: run {migrate_command(connection.alias)}."


def migrate_command(alias: str) -> str:
    """Return the shell command that creates ATP's tables in the database with this alias."""
    return "manage.py migrate" + ("" if alias == DEFAULT_DB_ALIAS else f" --database {alias}")


@cache
def _migrations() -> list[str]:
    module, _ = MigrationLoader.migrations_module(_APP)
    if module is None:  # the project has switched migrations off
        return []
    modules = pkgutil.iter_modules(import_module(module).__path__)
    return sorted(each.name for each in modules if each.name[0] not in "_~")
