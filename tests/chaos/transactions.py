"""An open transaction that has locked rows of the queue and does not commit."""

import contextlib
import time

from django.db import connection

# The row is chosen without a lock: FOR UPDATE would lock the rows that OFFSET passes over, too.
_ANY = (
    "SELECT {key} FROM {table} {where} ORDER BY 1 "
    "OFFSET floor(%s * (SELECT count(*) FROM {table} {where})) LIMIT 1"
)
_LIVE = "(SELECT id FROM atp_instance WHERE finished IS NULL)"
# What is locked, by name: the rows of a table with one of these keys, which ``member`` chooses.
_LOCKS = {
    "task": ("atp_task", "instance_id", "WHERE daemon_id IS NOT NULL"),
    "waiting task": ("atp_task", "instance_id", "WHERE daemon_id IS NULL"),
    "instance": ("atp_instance", "id", "WHERE finished IS NULL"),
    "inputs": ("atp_inputs", "instance_id", f"WHERE instance_id IN {_LIVE}"),
    "log": ("atp_logrecord", "instance_id", f"WHERE instance_id IN {_LIVE}"),
    "daemon": ("atp_daemon", "id", ""),
    "limit": ("atp_limit", "id", ""),
    "type": ("atp_type", "id", ""),
}
OF_INSTANCES = ("task", "waiting task", "instance", "inputs", "log")
HOWS = (*_LOCKS, *OF_INSTANCES)
_UUID = "SELECT uuid FROM atp_instance WHERE id = %s"


def hold(how, member, span):
    """Lock the rows of one key for this many seconds, then roll back.

    Returns a text about the rows, and the uuid of the Instance that was locked, or "".
    """
    table, key, where = _LOCKS[how]
    chosen = _ANY.format(table=table, key=key, where=where)
    with contextlib.closing(connection.copy()) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                f"SELECT {key} FROM {table} WHERE {key} = ({chosen}) FOR UPDATE SKIP LOCKED",
                [member],
            )
            row = cursor.fetchone()
            if row is None:
                return f"there was no {how} to be locked", ""
            uuid = ""
            if how in OF_INSTANCES:
                cursor.execute(_UUID, row)
                uuid = str(cursor.fetchone()[0])
            time.sleep(span)
        other.rollback()
    return f"{how} {row[0]} was locked", uuid
