"""The answers of PostgreSQL: see :mod:`..vendors`."""

from datetime import UTC, datetime

from ..common.vendor import file_id, lock_folder
from ..values import OpenTransaction
from .driver.guests import as_guest

__all__ = [
    "as_guest",
    "file_id",
    "kept_type",
    "lock_folder",
    "log_position",
    "now",
    "open_transactions",
]

# The oldest come first. A session that this user may not see shows no xact_start.
MOST_TRANSACTIONS = 5
_OPEN = """
SELECT extract(epoch FROM clock_timestamp())::text, pid, application_name, usename,
    extract(epoch FROM xact_start)::text,
    (SELECT count(*) FROM pg_stat_activity waiting
        WHERE waiting.wait_event_type = 'Lock' AND other.pid = ANY (pg_blocking_pids(waiting.pid)))
FROM (SELECT) clock LEFT JOIN (
    SELECT * FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND xact_start < clock_timestamp() - %s::interval
    ORDER BY xact_start LIMIT %s
) other ON true ORDER BY xact_start
"""

_KEPT = "SELECT id FROM atp_type WHERE identifier = %s FOR KEY SHARE"
# Every record that is logged later gets a higher number, whenever it commits.
_LOG_POSITION = """
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('atp_logrecord', 'id')::regclass), 0)
"""


def log_position(connection):
    with connection.cursor() as cursor:
        cursor.execute(_LOG_POSITION)
        return cursor.fetchone()[0]


def now(connection):
    with connection.cursor() as cursor:
        # As text, since psycopg2 returns naive times if USE_TZ is off.
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::text")
        return _time(cursor.fetchone()[0])


def _time(text):
    return datetime.fromtimestamp(float(text), UTC)


def open_transactions(connection, longer):
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [f"{longer} seconds", MOST_TRANSACTIONS])
        rows = cursor.fetchall()
    found = [
        OpenTransaction(
            pid=pid,
            application=application or "",
            user=user or "",
            since=_time(since),
            waits_for_it=waiting,
        )
        for _, pid, application, user, since, waiting in rows
        if pid is not None
    ]
    return _time(rows[0][0]), found


def kept_type(types, identifier):
    # select_for_update() would keep others from enqueueing at the same time.
    return types.raw(_KEPT, [identifier])
