"""The raw writes on SQLite."""

from datetime import UTC, datetime
from uuid import uuid4

from ..log_column import KIND

INSTANCE = """
INSERT INTO atp_instance (
    id, type_id, uuid, state, reason, collection, priority, attempt, restarts, retries, lost,
    progress_message, created_by, created
)
VALUES (?, ?, ?, 'ACCEPTED', '', '', 0, 0, 0, 0, 0, '', '', ?)
"""
INPUTS = "INSERT INTO atp_inputs (instance_id, format, data) VALUES (?, 'json', ?)"
TASK = """
INSERT INTO atp_task (instance_id, type_id, collection, priority, due_at, attempt, request)
VALUES (?, ?, '', 0, ?, 0, '')
"""
LOG = f"""
INSERT INTO atp_logrecord (instance_id, subject, time, {KIND}, state, attempt, level, who, message)
VALUES (?, '', ?, ?, ?, ?, 20, 'floor', '')
"""
HOLD = "UPDATE atp_task SET daemon_id = ?, attempt = attempt + 1 WHERE instance_id = ?"
SCHEDULE = "UPDATE atp_instance SET state = 'SCHEDULED', attempt = attempt + 1 WHERE id = ?"
LOOK = "SELECT instance_id, format, data FROM atp_inputs WHERE instance_id BETWEEN ? AND ?"
DELETE = "DELETE FROM atp_task WHERE instance_id = ?"
FINISH = """
UPDATE atp_instance SET state = 'FINISHED', progress = 1, started = ?, finished = ? WHERE id = ?
"""
JOIN = """
INSERT INTO atp_daemon (
    uuid, host, pid, version, types, workers, lock, lease_until, idle, request, started, seen
)
VALUES (?, 'floor', 1, '', '[]', '[]', '', ?, 0, '', ?, ?)
"""


class RawQueue:
    """The writes of one connection."""

    notifies = False

    def __init__(self, connection, type_id):
        self._connection = connection
        self._type = type_id

    def enqueue_one(self, number, *, notify=False):
        """Write one Instance in one transaction, and return its key. Nobody is told."""
        [key] = self.enqueue_many([number])
        return key

    def enqueue_many(self, numbers):
        """Write Instances in one transaction, and return their keys."""
        now = _now()
        self._connection.execute("BEGIN IMMEDIATE")
        [[last]] = self._connection.execute("SELECT coalesce(max(id), 0) FROM atp_instance")
        keys = range(last + 1, last + 1 + len(numbers))
        self._write(INSTANCE, ((key, self._type, uuid4().hex, now) for key in keys))
        self._write(INPUTS, zip(keys, map(_inputs, numbers), strict=True))
        self._write(LOG, ((key, now, "enqueue", "ACCEPTED", 0) for key in keys))
        self._write(TASK, ((key, self._type, now) for key in keys))
        self._connection.execute("COMMIT")
        return list(keys)

    def join(self):
        """Write a daemon that may hold Tasks, and return its key."""
        now = _now()
        return self._connection.execute(JOIN, (uuid4().hex, now, now, now)).lastrowid

    def leave(self, daemon):
        """Remove a daemon that holds nothing any more."""
        self._connection.execute("DELETE FROM atp_daemon WHERE id = ?", (daemon,))

    def claim(self, keys, daemon):
        """Claim Tasks for a daemon in one transaction, and read their Inputs."""
        now = _now()
        self._connection.execute("BEGIN IMMEDIATE")
        self._write(HOLD, ((daemon, key) for key in keys))
        self._write(SCHEDULE, ((key,) for key in keys))
        self._write(LOG, ((key, now, "claim", "SCHEDULED", 1) for key in keys))
        self._connection.execute(LOOK, (keys[0], keys[-1])).fetchall()
        self._connection.execute("COMMIT")

    def hold(self, key, daemon):
        """Claim one Task in one statement, and write nothing else."""
        self._connection.execute(HOLD, (daemon, key))

    def finish(self, keys):
        """Record in one transaction that Tasks have run."""
        now = _now()
        self._connection.execute("BEGIN IMMEDIATE")
        self._write(DELETE, ((key,) for key in keys))
        self._write(FINISH, ((now, now, key) for key in keys))
        self._write(LOG, ((key, now, "start", "RUNNING", 1) for key in keys))
        self._write(LOG, ((key, now, "finish", "FINISHED", 1) for key in keys))
        self._connection.execute("COMMIT")

    def _write(self, statement, rows):
        self._connection.executemany(statement, rows)


def _now():
    return str(datetime.now(UTC).replace(tzinfo=None))


def _inputs(number):
    return f'{{"number":{number}}}'
