"""Limits on PostgreSQL: one statement to look at them, one to lock them."""

from datetime import UTC, datetime

from ...models import Type
from ..buckets import Bucket, Row
from ..common.control.limits import Limited as ORMLimited
from ..rotation import most_steps
from .driver.arrays import texts
from .driver.cursors import cursor_of
from .driver.statements import execute


class Limited(ORMLimited):
    def _lock_limits(self, type):
        with cursor_of(self.connection) as cursor:
            execute(cursor, "lock_limits", {"type": type})
            return cursor.fetchone()[0]

    def _open_lanes(self, type, full, after, most):
        key = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        closed = self._closed(self.now())
        if key is None or closed.shuts(key):
            return [], []
        shut = [collection for of, collection in closed.lanes if of == key]
        parameters = {
            "type": type,
            "after": after,
            "closed": texts([*full, *shut]),
            "limit": most,
            "most": most_steps(1),
        }
        with cursor_of(self.connection) as cursor:
            execute(cursor, "open_lanes", parameters)
            rows = cursor.fetchall()
        found = [collection for collection, is_open, _ in rows if is_open]
        return found[:most], [collection for collection, _, is_cut in rows if is_cut]

    def _buckets(self, types, *, daemon=None):
        asks = None if daemon is None else str(daemon)
        with cursor_of(self.connection) as cursor:
            execute(cursor, "limits", {"types": list(types), "daemon": asks})
            rows = cursor.fetchall()
        return [
            Bucket.of(
                Row(*columns, _time(refilled)),
                columns[1],
                _time(now),
                held=held,
                own=own,
                daemons=max(1, daemons),
            )
            for *columns, refilled, held, own, daemons, now in rows
        ] + self._guards(types)


def _time(epoch):
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
