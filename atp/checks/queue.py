"""The checks of the queue's database, and of the declared Types."""

from django.apps import apps
from django.core import checks
from django.core.checks import Error, Tags, register
from django.db import connections, router
from django.db.utils import ConnectionDoesNotExist

from ..authoring import retrying
from ..conf import settings
from ..verbs.registry import registry
from ..words.hints import did_you_mean
from .settings import with_valid_settings

# A message names this many Types at most.
NAMED = 10
# A daemon's dispatcher has three connections: to claim, to record and to purge.
FROM_A_POOL = 3
# The psycopg pool's own.
_POOL_SIZE = 4


@register(Tags.compatibility)
@with_valid_settings
def check_queue_database(app_configs, **kwargs):
    """Check the settings of the queue's database, without a connection to it."""
    try:
        connection = connections[settings.DATABASE]
    except ConnectionDoesNotExist:
        return [
            Error(
                f"ATP['DATABASE'] is {settings.DATABASE!r}, which is not in DATABASES."
                f"{did_you_mean(settings.DATABASE, list(connections))}",
                id="atp.E002",
            )
        ]
    return [
        *_check_routing(),
        *(_check_sqlite(connection) if connection.vendor == "sqlite" else []),
        *_check_pool(connection),
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_transactional(app_configs, **kwargs):
    """Check that transactional Types name the queue's database, where their end is written (G7)."""
    return [
        Error(
            f"Type {task_type.identifier!r} is transactional on database {task_type.database!r}, "
            f"but the queue is in {settings.DATABASE!r}.",
            hint="One transaction commits the handler's writes and its end, so both must be in one "
            f"database. If the handler writes to {settings.DATABASE!r}, set "
            f"transactional={settings.DATABASE!r}.",
            id="atp.E003",
        )
        for task_type in registry
        if task_type.database not in (None, settings.DATABASE)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_exceptions(app_configs, **kwargs):
    """Check the dotted names in ``retry_on``, ``fatal_on`` and ``downstream_errors``."""
    return [
        Error(f"Type {task_type.identifier!r}: {problem}", id="atp.E008")
        for task_type in registry
        for problem in retrying.problems(task_type)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_retention(app_configs, **kwargs):
    """Report the Types that keep Instances for ever: some day these fill the disk."""
    kept = sorted(
        task_type.identifier for task_type in registry if task_type.registration().retention is None
    )
    if not kept:
        return []
    named = ", ".join(kept[:NAMED]) + (", …" if len(kept) > NAMED else "")
    return [
        checks.Info(
            f"{len(kept)} Types keep terminal Instances for ever: {named}.",
            hint="An Instance with its log takes about 1 kB. Set retention=timedelta(days=…) "
            "of the Type, or ATP['RETENTION']. If they are to be kept for ever, add 'atp.I007' to "
            "SILENCED_SYSTEM_CHECKS.",
            id="atp.I007",
        )
    ]


def _check_routing():
    """Check that DATABASE_ROUTERS sends queries for ATP's models to the queue's database."""
    found = router.db_for_read(apps.get_model("atp", "Instance"))
    if found == settings.DATABASE:
        return []
    return [
        checks.Warning(
            f"ATP['DATABASE'] is {settings.DATABASE!r}, but DATABASE_ROUTERS sends ATP's models to "
            f"{found!r}.",
            hint="Add 'atp.router.QueueRouter' to DATABASE_ROUTERS.",
            id="atp.W004",
        )
    ]


@register(Tags.database)
@with_valid_settings
def check_server(app_configs, databases=None, **kwargs):
    """Check the encoding and ``array_nulls`` of the queue's database, if that is PostgreSQL.

    This takes a connection to the database.
    """
    if settings.DATABASE not in (databases or ()):
        return []
    connection = connections[settings.DATABASE]
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_encoding'), current_setting('array_nulls')")
        encoding, nulls = cursor.fetchone()
    problems = []
    if encoding != "UTF8":
        problems.append(
            checks.Warning(
                f"The queue's database {settings.DATABASE!r} is in {encoding}: a task with a "
                "character that this encoding lacks cannot be enqueued.",
                hint="Make the database with ENCODING 'UTF8'.",
                id="atp.W017",
            )
        )
    if nulls != "on":
        problems.append(
            Error(
                "array_nulls is off in the queue's database: an enqueue of many would store the "
                "text 'NULL' in place of null values.",
                hint="ALTER ROLE … RESET array_nulls, or set it to on.",
                id="atp.E018",
            )
        )
    return problems


def _check_pool(connection):
    """Check that a pool of psycopg 3 has a connection for each thread of a daemon."""
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool or connection.vendor != "postgresql":
        return []
    given = pool if isinstance(pool, dict) else {}
    most = given.get("max_size") or given.get("min_size", _POOL_SIZE)
    if most >= FROM_A_POOL:
        return []
    return [
        checks.Warning(
            f"DATABASES[{connection.alias!r}]['OPTIONS']['pool'] lets each process have {most} "
            f"connections; a daemon's dispatcher takes {FROM_A_POOL}.",
            hint=f"Say max_size={FROM_A_POOL} or more.",
            id="atp.W016",
        )
    ]


def _check_sqlite(connection):
    """Check the options that SQLite needs as a queue: WAL, immediate transactions, a time-out."""
    options = connection.settings_dict.get("OPTIONS", {})
    mode = str(options.get("transaction_mode") or "").upper()
    pragmas = "".join(str(options.get("init_command") or "").lower().split())
    is_fine = {
        "atp.W001": mode in ("IMMEDIATE", "EXCLUSIVE"),
        "atp.W002": "journal_mode=wal" in pragmas,
        "atp.W003": float(options.get("timeout", 5)) >= 10,
    }
    where = f"DATABASES[{connection.alias!r}]['OPTIONS']"
    return [
        checks.Warning(f"{where}{problem}", hint=hint, id=id)
        for id, (problem, hint) in _SQLITE.items()
        if not is_fine[id]
    ]


_SQLITE = {
    "atp.W001": (
        "['transaction_mode'] is not 'IMMEDIATE'.",
        "A transaction that reads first and writes later fails with 'database is locked' when "
        "another process has written in between.",
    ),
    "atp.W002": (
        "['init_command'] does not set 'PRAGMA journal_mode=WAL'.",
        "Without a write-ahead log readers wait for the daemon's writes, and the daemon waits for "
        "readers.",
    ),
    "atp.W003": (
        "['timeout'] is less than 10 seconds.",
        "SQLite has one writer at a time: the others wait this long for their turn before they "
        "fail.",
    ),
}
