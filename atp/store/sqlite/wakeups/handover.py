"""Handing a Task to an idle daemon, in the transaction that enqueues it.

The daemon's row names the file that its listener has locked. From the handing on, it names the
Task too: there the listener finds the Task, however late it looks.
"""

import os
from pathlib import Path
from uuid import UUID

from .... import folders
from ...values import Claimed
from ..base import as_instant
from ..parameters import COLUMNS, parameters_of

# The daemon must be idle by its own word, go on running, and serve the Type. The Task must be the
# one that it would claim first: nothing waits in the lane, and the Type has no gates and no
# limits.
TAKERS = """
    SELECT atp_daemon.id, host || ':' || pid, channel FROM atp_type CROSS JOIN atp_daemon
    WHERE atp_type.id = %(type)s AND idle AND channel <> '' AND NOT instr(channel, ':')
      AND lease_until > %(now)s AND mode = 'running' AND request = ''
      AND identifier IN (SELECT value FROM json_each(types))
      AND NOT EXISTS (
          SELECT 1 FROM atp_gate WHERE type_id IS NULL OR type_id = %(type)s
        UNION ALL
          SELECT 1 FROM atp_limit
          WHERE type_id = %(type)s AND (
              max_running NOT NULL OR max_running_per_collection NOT NULL OR per_second NOT NULL
          )
        UNION ALL
          SELECT 1 FROM atp_downstream
          WHERE name = atp_type.downstream AND atp_downstream.state <> 'closed'
        UNION ALL
          SELECT 1 FROM (
              SELECT 1 FROM atp_task INDEXED BY atp_task_claim
              WHERE type_id = %(type)s AND collection = %(collection)s AND daemon_id IS NULL
              LIMIT 1
          )
      )
"""
# From here on the daemon is not idle until it says so again: it is handed one Task at a time.
TAKE = """
    UPDATE atp_daemon SET idle = false, channel = channel || ':' || %(key)s WHERE id = %(daemon)s
"""
# The Task that a daemon was handed last, if it still holds it, and its channel as it is now.
STANDS = """
    SELECT channel, instance_id FROM atp_daemon
    JOIN atp_task ON instance_id = CAST(substr(channel, length(%(channel)s) + 2) AS integer)
        AND daemon_id = atp_daemon.id
    WHERE uuid = %(daemon)s AND channel > %(channel)s || ':' AND channel < %(channel)s || ';'
"""
# The same with all that an attempt needs, in the driver's style, since the listener has a
# connection of its own.
HANDED = f"""
    SELECT atp_daemon.uuid, task.instance_id, instance.uuid, task.attempt, inputs.format,
        inputs.data, instance.identifier, task.collection, task.priority, instance.retries,
        instance.restarts, instance.lost, instance.own, instance.created, {COLUMNS}
    FROM atp_daemon
    CROSS JOIN atp_task task
        ON task.instance_id = CAST(substr(channel, length(:channel) + 2) AS integer)
        AND task.daemon_id = atp_daemon.id AND task.attempt = 1
    CROSS JOIN atp_instance instance ON instance.id = task.instance_id
    CROSS JOIN atp_inputs inputs INDEXED BY sqlite_autoindex_atp_inputs_1
        ON inputs.instance_id = task.instance_id
    CROSS JOIN atp_type type ON type.id = task.type_id
    WHERE channel > :channel || ':' AND channel < :channel || ';'
"""  # noqa: S608 (names of columns)


def read(connection, channel):
    """Return the Task last handed over on a channel: the daemon's uuid and a Claimed; or None."""
    row = connection.execute(HANDED, {"channel": channel}).fetchone()
    if row is None:
        return None
    daemon, key, name, *rest, created = row[:14]
    parameters = parameters_of(*row[14:])
    claimed = Claimed(key, str(UUID(name)), *rest, parameters, as_instant(created))
    return UUID(daemon), claimed


class ChannelLock:
    """The name of a listener for the lifetime of its process: a file that it has locked."""

    def __init__(self, folder):
        """Create and lock the file. Raises OSError."""
        folders.make_folder(folder)
        for path in folder.glob("*.ear"):
            if folders.is_free(path):
                folders.remove_file(path)
        self.name = os.urandom(16).hex()
        self._path = _path(folder, self.name)
        # The file is renamed once it is locked; else another process could take it for abandoned.
        made = self._path.with_suffix(".new")
        self._lock = folders.acquire_lock(made)
        made.rename(self._path)

    def close(self):
        folders.remove_file(self._path)
        os.close(self._lock)


def is_heard(folder, channel):
    """Return whether a listener has this name; False if that cannot be found out."""
    path = _path(folder, channel)
    try:
        return os.access(path, os.R_OK | os.W_OK) and not folders.is_free(path)
    except OSError:
        return False


def _path(folder, channel):
    return Path(folder, f"{channel}.ear")
