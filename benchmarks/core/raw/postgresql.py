"""The raw writes on PostgreSQL."""

import select
from uuid import uuid4

from ..log_column import KIND

CHANNEL = "benchmarks_floor"

ENQUEUE_ONE = f"""
WITH made AS (
    INSERT INTO atp_instance (
        type_id, uuid, state, reason, collection, priority, attempt, restarts, retries, lost,
        progress_message, created_by, created
    )
    VALUES (%(type)s, %(uuid)s, 'ACCEPTED', '', '', 0, 0, 0, 0, 0, '', '', clock_timestamp())
    RETURNING id, created
),
given AS (
    INSERT INTO atp_inputs (instance_id, format, data) SELECT id, 'json', %(data)s FROM made
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
    SELECT id, '', created, 'enqueue', 'ACCEPTED', 0, 20, '', '' FROM made
),
queued AS (
    INSERT INTO atp_task (instance_id, type_id, collection, priority, due_at, attempt, request)
    SELECT id, %(type)s, '', 0, created, 0, '' FROM made
    RETURNING instance_id
)
"""
ENQUEUE_MANY = f"""
WITH source AS MATERIALIZED (
    SELECT nextval(keys) AS id, uuid, data, clock_timestamp() AS now
    FROM CAST(pg_get_serial_sequence('atp_instance', 'id') AS regclass) AS keys,
        unnest(%(uuids)s::uuid[], %(data)s::text[]) AS source (uuid, data)
),
made AS (
    INSERT INTO atp_instance (
        id, type_id, uuid, state, reason, collection, priority, attempt, restarts, retries, lost,
        progress_message, created_by, created
    )
    SELECT id, %(type)s, uuid, 'ACCEPTED', '', '', 0, 0, 0, 0, 0, '', '', now FROM source
),
given AS (
    INSERT INTO atp_inputs (instance_id, format, data) SELECT id, 'json', data FROM source
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
    SELECT id, '', now, 'enqueue', 'ACCEPTED', 0, 20, '', '' FROM source
)
INSERT INTO atp_task (instance_id, type_id, collection, priority, due_at, attempt, request)
SELECT id, %(type)s, '', 0, now, 0, '' FROM source
RETURNING instance_id
"""
HOLD = """
UPDATE atp_task SET daemon_id = %(daemon)s, attempt = attempt + 1
WHERE instance_id = ANY (%(keys)s::bigint[])
"""
CLAIM = (
    HOLD,
    """
UPDATE atp_instance SET state = 'SCHEDULED', attempt = attempt + 1
WHERE id = ANY (%(keys)s::bigint[])
""",
    f"""
INSERT INTO atp_logrecord (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
SELECT id, '', clock_timestamp(), 'claim', 'SCHEDULED', 1, 20, 'floor', ''
FROM unnest(%(keys)s::bigint[]) AS keys (id)
""",
    "SELECT instance_id, format, data FROM atp_inputs WHERE instance_id = ANY (%(keys)s::bigint[])",
)
FINISH = (
    "DELETE FROM atp_task WHERE instance_id = ANY (%(keys)s::bigint[])",
    """
UPDATE atp_instance SET state = 'FINISHED', progress = 1,
    started = clock_timestamp(), finished = clock_timestamp()
WHERE id = ANY (%(keys)s::bigint[])
""",
    f"""
INSERT INTO atp_logrecord (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
SELECT id, '', clock_timestamp(), event, state, 1, 20, 'floor', ''
FROM unnest(%(keys)s::bigint[]) AS keys (id),
    (VALUES ('start', 'RUNNING'), ('finish', 'FINISHED')) AS events (event, state)
""",
)
JOIN = """
INSERT INTO atp_daemon (
    uuid, host, pid, version, types, workers, lock, lease_until, idle, request, started, seen
)
VALUES (
    %(uuid)s, 'floor', 1, '', '[]', '[]', '', clock_timestamp() + interval '1 day', false, '',
    clock_timestamp(), clock_timestamp()
)
RETURNING id
"""


class RawQueue:
    """The writes of one connection."""

    notifies = True

    def __init__(self, connection, type_id):
        self._connection = connection
        self._cursor = connection.cursor()
        self._type = type_id
        self._is_prepared = False

    def enqueue_one(self, number, *, notify=False):
        """Write one Instance in one statement and one commit, and return its key.

        Listeners are told the key and the number.
        """
        notice = f", pg_notify('{CHANNEL}', instance_id || ' ' || %(number)s)" if notify else ""
        own = {"type": self._type, "uuid": str(uuid4()), "data": _inputs(number), "number": number}
        self._cursor.execute(f"{ENQUEUE_ONE} SELECT instance_id{notice} FROM queued", own)
        return self._cursor.fetchone()[0]

    def enqueue_prepared(self, number):
        """Write one Instance like :meth:`enqueue_one`, by a statement that is prepared."""
        if not self._is_prepared:
            made = ENQUEUE_ONE % {"type": "$1", "uuid": "$2", "data": "$3"}
            self._cursor.execute(
                f"PREPARE floor (bigint, uuid, text) AS {made} SELECT instance_id FROM queued"
            )
            self._is_prepared = True
        own = [self._type, str(uuid4()), _inputs(number)]
        self._cursor.execute("EXECUTE floor (%s, %s, %s)", own)
        return self._cursor.fetchone()[0]

    def enqueue_many(self, numbers):
        """Write Instances in one statement and one commit, and return their keys."""
        own = {
            "type": self._type,
            "uuids": [str(uuid4()) for _ in numbers],
            "data": [_inputs(number) for number in numbers],
        }
        self._cursor.execute(ENQUEUE_MANY, own)
        return [key for (key,) in self._cursor.fetchall()]

    def join(self):
        """Write a daemon that may hold Tasks, and return its key."""
        self._cursor.execute(JOIN, {"uuid": str(uuid4())})
        return self._cursor.fetchone()[0]

    def leave(self, daemon):
        """Remove a daemon that holds nothing any more."""
        self._cursor.execute("DELETE FROM atp_daemon WHERE id = %(daemon)s", {"daemon": daemon})

    def claim(self, keys, daemon):
        """Claim Tasks for a daemon in one transaction, and read their Inputs."""
        self._in_transaction(CLAIM, {"keys": keys, "daemon": daemon})

    def hold(self, key, daemon):
        """Claim one Task in one statement, and write nothing else."""
        self._cursor.execute(HOLD, {"keys": [key], "daemon": daemon})

    def finish(self, keys):
        """Record in one transaction that Tasks have run."""
        self._in_transaction(FINISH, {"keys": keys})

    def _in_transaction(self, statements, parameters):
        self._cursor.execute("BEGIN")
        for statement in statements:
            self._cursor.execute(statement, parameters)
            if self._cursor.description:
                self._cursor.fetchall()
        self._cursor.execute("COMMIT")

    def listen(self):
        """Be told from here on what is enqueued with a notice."""
        self._cursor.execute(f"LISTEN {CHANNEL}")

    def heard(self):
        """Wait for notices; yield the key and the number of each."""
        select.select([self._connection.fileno()], [], [])
        for payload in self._payloads():
            key, number = payload.split()
            yield int(key), int(number)

    def _payloads(self):
        if not hasattr(self._connection, "poll"):  # psycopg 3
            return [notice.payload for notice in self._connection.notifies(timeout=0)]
        self._connection.poll()
        notices = [notice.payload for notice in self._connection.notifies]
        self._connection.notifies.clear()
        return notices


def _inputs(number):
    return f'{{"number":{number}}}'
