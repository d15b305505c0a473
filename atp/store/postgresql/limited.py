"""Limits on PostgreSQL: one statement to look at them, one to lock them."""

from datetime import UTC, datetime
from typing import NamedTuple

from ..limits import Bucket
from ..orm.limited import Limited as ORMLimited
from .cursors import cursor_of
from .statements import execute


class _Limit(NamedTuple):
    """What is read of a row of Limit."""

    pk: int
    identifier: str
    collection: str | None
    weight: float
    max_running: int | None
    per_second: float | None
    burst: int
    tokens: float
    refilled: datetime | None


class Limited(ORMLimited):
    def _buckets(self, types, *, lock=False):
        parameters = {"types": list(types)}
        with cursor_of(self.connection) as cursor:
            if lock:
                execute(cursor, "lock_limits", parameters)
            execute(cursor, "limits", parameters)
            return [
                Bucket.of(_Limit(*columns, _time(refilled)), columns[1], held, _time(now))
                for *columns, refilled, held, now in cursor.fetchall()
            ]


def _time(epoch):
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
