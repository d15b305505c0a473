"""What PostgreSQL answers to each function that `common/base.py` names."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.models import QuerySet
from django.db.models.query import RawQuerySet

from ...models import Type
from ..common.base import file_id, lock_folder
from ..facts import OpenTransaction, Session
from .sessions import session_of
from .statements import PLANNING, cursor_of

__all__ = [
    "as_guest",
    "file_id",
    "kept_type",
    "lock_folder",
    "log_position",
    "now",
    "open_transactions",
    "sessions",
]

# The oldest come first. A session that this user may not see shows no xact_start.
MOST_TRANSACTIONS = 5
_OPEN = """
WITH held (pid, place) AS {held}
SELECT extract(epoch FROM clock_timestamp())::text, pid, application_name, usename,
    extract(epoch FROM xact_start)::text, extract(epoch FROM query_start)::text,
    (SELECT count(*) FROM pg_stat_activity waiting
        WHERE waiting.wait_event_type = 'Lock' AND other.pid = ANY (pg_blocking_pids(waiting.pid))),
    coalesce(place, '')
FROM (SELECT) clock LEFT JOIN (
    SELECT session.*, place FROM pg_stat_activity session LEFT JOIN held USING (pid)
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND (
        backend_type = 'client backend' AND xact_start < clock_timestamp() - %(longer)s::interval
        AND wait_event_type IS DISTINCT FROM 'Lock' -- it waits for another one itself
        OR place IS NOT NULL
    )
    ORDER BY place IS NULL, xact_start LIMIT %(most)s
) other ON true ORDER BY place IS NULL, xact_start
"""
_END = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %(pid)s AND (
    %(since)s::timestamptz IS NULL OR abs(extract(epoch FROM xact_start - %(since)s)) < 0.001
)
"""
_NOTHING_HELD = "(SELECT NULL::int, NULL::text WHERE false)"
# A claim changes rows in these tables, which conflicts with these modes of a lock on a table.
_TABLES = ["atp_task", "atp_instance", "atp_logrecord", "atp_daemon"]
_MODES = ["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]
# The row of a Task names in xmax who has locked, changed or deleted it, also after the end of that
# transaction. Every transaction that goes on has a lock on its own number. A savepoint has a number
# of its own, which is higher; when it is released, that lock is gone, and only pg_xact_status tells
# that it goes on: then it belongs to the one transaction that has written to the table, if there is
# just one. A number ahead of the last one that has ended goes on, and pg_xact_status may refuse it.
# A row that several transactions share has in xmax a number of another kind: nothing is told of it.
_HELD = """(
    WITH open AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND datname = current_database()
            AND (xact_start IS NULL OR xact_start < clock_timestamp() - %(locking)s::interval)
    ),
    lock AS MATERIALIZED (
        SELECT locktype, relation, mode, transactionid, pid FROM pg_locks JOIN open USING (pid)
        WHERE granted AND (
            locktype = 'transactionid' AND mode = 'ExclusiveLock' OR locktype = 'relation'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    ),
    task AS MATERIALIZED (
        SELECT xmax AS number, next,
            mod(xmax::text::numeric - next + 2 * 4294967296, 4294967296) AS ahead
        FROM atp_task, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::numeric AS next) clock
        WHERE xmax <> 0
            AND instance_id = (SELECT id FROM atp_instance WHERE uuid = %(instance)s::uuid)
    ),
    direct AS (
        SELECT pid FROM task JOIN lock ON locktype = 'transactionid' AND transactionid = number
    ),
    indirect AS (
        SELECT min(pid) AS pid
        FROM (
            SELECT DISTINCT writing.pid FROM task, lock writing, lock own
            WHERE writing.locktype = 'relation' AND writing.relation = to_regclass('atp_task')
                AND writing.mode IN ('RowShareLock', 'RowExclusiveLock')
                AND own.locktype = 'transactionid' AND own.pid = writing.pid
                AND age(own.transactionid) > age(task.number)
                AND CASE WHEN ahead < 1000000 THEN true WHEN next + ahead > 4294967300
                    THEN pg_xact_status((next + ahead - 4294967296)::text::xid8) = 'in progress'
                END
        ) writer
        HAVING count(*) = 1 AND NOT EXISTS (SELECT FROM direct)
    ),
    tables AS (
        SELECT pid, min(name) AS name FROM lock, unnest(%(tables)s) name
        WHERE locktype = 'relation' AND relation = to_regclass(name) AND mode = ANY (%(modes)s)
        GROUP BY pid
    )
    SELECT pid, name FROM tables
    UNION ALL
    SELECT pid, %(row)s::text FROM (SELECT * FROM direct UNION SELECT * FROM indirect) holder
    WHERE pid NOT IN (SELECT pid FROM tables)
)"""

# The session that is at work comes first, then the one that was so last.
MOST_SESSIONS = 3
_SESSIONS = """
SELECT pid, coalesce(state, ''), coalesce(wait_event_type, ''), coalesce(wait_event, ''),
    extract(epoch FROM clock_timestamp() - query_start)::float8, pg_blocking_pids(pid)
FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()
ORDER BY state = 'idle', state_change DESC LIMIT %s
"""

_KEPT = "SELECT id FROM atp_type WHERE identifier = %s FOR KEY SHARE"
# Every record that is logged later gets a higher number, whenever it commits.
_LOG_POSITION = """
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('atp_logrecord', 'id')::regclass), 0)
"""


def log_position(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_LOG_POSITION)
        return cursor.fetchone()[0]


def now(connection: BaseDatabaseWrapper) -> datetime:
    with connection.cursor() as cursor:
        # As text, since psycopg2 returns naive times if USE_TZ is off.
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::text")
        return _time(cursor.fetchone()[0])


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(float(text), UTC)


def open_transactions(
    connection: BaseDatabaseWrapper, longer: float, locking: float | None, instance: UUID | None
) -> tuple[datetime, list[OpenTransaction]]:
    statement = _OPEN.format(held=_NOTHING_HELD if locking is None else _HELD)
    parameters: dict[str, Any] = {
        "longer": f"{longer} seconds",
        "most": MOST_TRANSACTIONS,
        "locking": f"{locking} seconds",
        "instance": None if instance is None else str(instance),
        "tables": _TABLES,
        "modes": _MODES,
        "row": OpenTransaction.ROW,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows = cursor.fetchall()
    found = [
        OpenTransaction(
            pid=pid,
            application=application or "",
            user=user or "",
            since=None if since is None else _time(since),
            statement_since=None if statement is None else _time(statement),
            waits_for_it=waiting,
            locked=place,
        )
        for _, pid, application, user, since, statement, waiting, place in rows
        if pid is not None
    ]
    return _time(rows[0][0]), found


def end_session(connection: BaseDatabaseWrapper, found: OpenTransaction) -> bool:
    """End the session of an OpenTransaction; return False if it has gone on to another one."""
    with connection.cursor() as cursor:
        cursor.execute(_END, {"pid": found.pid, "since": found.since})
        return cursor.fetchone() == (True,)


def sessions(connection: BaseDatabaseWrapper, application: str) -> list[Session]:
    with connection.cursor() as cursor:
        cursor.execute(_SESSIONS, [application, MOST_SESSIONS])
        return [
            Session(
                pid=pid,
                state=state,
                wait_type=wait_type,
                wait=wait,
                seconds=seconds,
                blockers=tuple(blockers),
            )
            for pid, state, wait_type, wait, seconds, blockers in cursor.fetchall()
        ]


def kept_type(types: QuerySet[Type], identifier: str) -> "RawQuerySet[Type]":
    # select_for_update() would keep others from enqueueing at the same time.
    return types.raw(_KEPT, [identifier])


# A daemon's statements on the connection of an application: they leave no trace there.
# Tests are such an application: the transaction of a test goes on after a daemon's work in it,
# and its connection after the test.


@contextmanager
def as_guest(connection: DatabaseWrapper) -> Iterator[None]:
    """Return a context in which a daemon's statements change no setting of the session.

    Each statement sets its own planning. After the block, the session and its open transaction
    plan as before.
    """
    connection.ensure_connection()
    session = session_of(connection)
    own, session.plans_own_way = session.plans_own_way, False
    before = _planning(connection) if connection.in_atomic_block else None
    try:
        yield
        if before and connection.in_atomic_block:
            _plan(connection, before)
    finally:
        session.plans_own_way = own


def _planning(connection: DatabaseWrapper) -> tuple[Any, ...]:
    said = ", ".join(f"current_setting('{name}')" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {said}")
        return cursor.fetchone()


def _plan(connection: DatabaseWrapper, values: Sequence[Any]) -> None:
    """Set these planning values again for the rest of the transaction."""
    given = ", ".join(f"set_config('{name}', %s, true)" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {given}", values)
