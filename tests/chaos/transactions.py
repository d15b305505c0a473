"""Somebody's open transaction: it has locked a row of the queue, and does not commit."""

import contextlib
import time

from django.db import connection

_ANY = "OFFSET floor(%s * (SELECT count(*) FROM {table} {where})) LIMIT 1"
# What is locked, by name: the statement, and what ``member`` chooses one of.
_LOCKS = {
    "task": ("atp_task", "WHERE daemon_id IS NOT NULL"),
    "instance": ("atp_instance", "WHERE finished IS NULL"),
    "daemon": ("atp_daemon", ""),
    "limit": ("atp_limit", ""),
    "type": ("atp_type", ""),
}
HOWS = (*_LOCKS, "task", "instance")


def hold(how, member, span):
    """Lock one row for so many seconds, then roll back; returns in words which it was."""
    table, where = _LOCKS[how]
    choice = _ANY.format(table=table, where=where)
    with contextlib.closing(connection.copy()) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                f"SELECT * FROM {table} {where} ORDER BY 1 {choice} FOR UPDATE SKIP LOCKED",
                [member],
            )
            row = cursor.fetchone()
            if row is None:
                return f"there was no {how} to be locked"
            time.sleep(span)
        other.rollback()
    return f"{how} {row[0]} was locked"
