"""What every operation begins with: are the tables migrated, who acts."""

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

# The actor of a verb (``by``): who acts and through which channel, as text for the log.


def check_by(by: object) -> None:
    """Check that ``by`` is text that the log can store. Raises InvalidOption."""
    if not isinstance(by, str):
        raise InvalidOption(f"by={by!r}: must be text, who acts and through which channel.")
    if len(by) > MAX_IDENTIFIER or "\x00" in by:
        raise InvalidOption(f"by: must be text of at most {MAX_IDENTIFIER} characters.")
    try:
        by.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"by={by!r}: half of a surrogate pair is no text.") from None


# Check whether the queue's database has the tables that this code needs.

F = TypeVar("F", bound=Callable[..., Any])

_APP = "atp"
# The databases that have Django's table of migrations. To look for it, a server reads much of its
# catalogue, more than for the rest of a probe.
_has_table: set[tuple[str, str]] = set()


def needs_tables(operation: F) -> F:
    """Decorate an operation: it raises NotMigrated if the database lacks what its query needs."""

    @wraps(operation)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return operation(*args, **kwargs)
        except (OperationalError, ProgrammingError) as error:
            if lacks := problem_behind(error):
                raise NotMigrated(lacks) from error
            raise

    return cast(F, translated)


def problem_behind(error: BaseException) -> str:
    """Return the sentence of :func:`problem` if missing tables explain an error, otherwise ""."""
    if not isinstance(error, ProgrammingError) and not _names_what_is_missing(error):
        return ""
    alias = settings.DATABASE
    try:
        return problem()
    except Error:
        # The transaction of the caller is broken, and takes no more queries.
        if "atp_" not in str(error):
            return ""
        lacks = "ATP's tables are missing, or older than this code,"
        return f"{lacks} in database {alias!r}: run {command(alias)}."


def _names_what_is_missing(error: BaseException) -> bool:
    """Return whether an error is SQLite's about a table or a column, and not about a lock."""
    said = str(error)
    return isinstance(error, OperationalError) and (
        said.startswith(("no such table", "no such column")) or " has no column named " in said
    )


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
