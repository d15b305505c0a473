"""Instances written straight into the tables: as many in seconds as the queue takes hours for."""

from dataclasses import dataclass

from .database import set_sequence
from .log_column import KIND

CHUNK = 50_000
# What the log says of an Instance, and its state then.
_ENQUEUED = (("enqueue", "ACCEPTED", 0),)
_FINISHED = (
    *_ENQUEUED,
    ("claim", "SCHEDULED", 1),
    ("start", "RUNNING", 1),
    ("finish", "FINISHED", 1),
)


@dataclass(frozen=True, kw_only=True)
class _Dialect:
    """A database's expressions for the uuid and the time of a number, from ``epoch`` on."""

    uuid: str
    time: str


_DIALECTS = {
    "postgresql": _Dialect(
        uuid="(lpad(to_hex((%(epoch)s * 1000.0)::bigint + number), 12, '0')"
        " || '70008000' || lpad(to_hex(number), 12, '0'))::uuid",
        time="to_timestamp(%(epoch)s + number / 1000.0)",
    ),
    "sqlite": _Dialect(
        uuid="printf('%%012x70008000%%012x', CAST(%(epoch)s * 1000 AS integer) + number, number)",
        time="strftime('%%Y-%%m-%%d %%H:%%M:%%f000', %(epoch)s + number / 1000.0, 'unixepoch')",
    ),
}
_NUMBERS = """(
    WITH RECURSIVE numbers (number) AS (
        SELECT CAST(%(first)s AS bigint)
        UNION ALL
        SELECT number + 1 FROM numbers WHERE number < %(last)s
    )
    SELECT number FROM numbers
) AS numbers"""


def fill_waiting(connection, identifier, count, *, epoch, priority=0, collection="", lanes=1):
    """Write Instances of a Type that wait, due a millisecond after each other from a time on.

    All in one collection; or in so many ``lanes``, whose names begin with it.
    """
    dialect = _DIALECTS[connection.vendor]
    named = "%(collection)s" if lanes == 1 else f"%(collection)s || (number %% {lanes})"
    task = f"""INSERT INTO atp_task
        (instance_id, type_id, collection, priority, due_at, attempt, request)
        SELECT number, %(type)s, {named}, %(priority)s, {dialect.time}, 0, '' FROM {_NUMBERS}"""
    statements = [*_statements(dialect, "ACCEPTED", _ENQUEUED, named), task]
    parameters = {"epoch": epoch, "priority": priority, "collection": collection}
    _fill(connection, identifier, count, statements, parameters)


def fill_finished(connection, identifier, count, *, epoch):
    """Write Instances of a Type that have FINISHED, a millisecond after each other."""
    statements = _statements(_DIALECTS[connection.vendor], "FINISHED", _FINISHED)
    _fill(connection, identifier, count, statements, {"epoch": epoch, "priority": 0})


def _statements(dialect, state, events, collection="''"):
    """Return those that write Instances in a state, their Inputs and their log."""
    attempt = events[-1][2]
    ended = dialect.time if state == "FINISHED" else "NULL"
    instance = f"""INSERT INTO atp_instance (
            id, type_id, uuid, state, reason, collection, priority, attempt, restarts, retries,
            lost, progress, progress_message, created_by, created, started, finished
        )
        SELECT
            number, %(type)s, {dialect.uuid}, '{state}', '', {collection}, %(priority)s, {attempt},
            0, 0, 0, NULL, '', '', {dialect.time}, {ended}, {ended}
        FROM {_NUMBERS}"""
    inputs = f"""INSERT INTO atp_inputs (instance_id, format, data)
        SELECT number, 'json', '{{"number":' || number || '}}' FROM {_NUMBERS}"""
    logs = [
        f"""INSERT INTO atp_logrecord
            (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
        SELECT number, '', {dialect.time}, '{event}', '{state}', {attempt}, 20, '', ''
        FROM {_NUMBERS}"""
        for event, state, attempt in events
    ]
    return [instance, inputs, *logs]


def _fill(connection, identifier, count, statements, parameters):
    from django.db import transaction

    from atp.models import Instance, Type

    type = Type.objects.get(identifier=identifier)
    before = _last_key(connection)
    with connection.cursor() as cursor:
        for first in range(before + 1, before + count + 1, CHUNK):
            last = min(first + CHUNK - 1, before + count)
            with transaction.atomic():
                trust_keys(connection, cursor)
                for statement in statements:
                    own = {"type": type.pk, "first": first, "last": last}
                    cursor.execute(statement, parameters | own)
    set_sequence(connection, Instance)


def _last_key(connection):
    from django.db.models import Max

    from atp.models import Instance

    return Instance.objects.aggregate(last=Max("pk"))["last"] or 0


def trust_keys(connection, cursor):
    """Do not check the keys of what is written in this transaction, where that is allowed."""
    if connection.vendor == "postgresql":
        cursor.execute("SHOW is_superuser")
        if cursor.fetchone()[0] == "on":
            cursor.execute("SET LOCAL session_replication_role = replica")
