"""Limits on SQLite: one statement to look at them, and one writer at a time."""

import json
from dataclasses import replace

from ...models import Type
from ..buckets import Bucket, Row
from ..common.control.limits import Limited as ORMLimited
from .base import SQLiteBase, as_instant, as_json, as_text

# The filter by daemon, of which there are few, lets atp_task_held (daemon, type, collection)
# serve. A time is made text, since the driver would convert a column of times.
_LIMITS = """
    SELECT own.id, identifier, own.collection, weight, max_running, per_second, burst,
        max_running_per_collection, tokens,
        refilled || '', (
            SELECT json_array(count(*), sum(daemon.uuid = %(daemon)s))
            FROM atp_daemon daemon CROSS JOIN atp_task task INDEXED BY atp_task_held
                ON daemon_id = daemon.id AND task.type_id = own.type_id
                AND (own.collection IS NULL OR task.collection = own.collection)
            WHERE own.max_running IS NOT NULL
        ), (SELECT count(*) FROM atp_daemon)
    FROM json_each(%(types)s) CROSS JOIN atp_type type ON identifier = value
    CROSS JOIN atp_limit own ON own.type_id = type.id
    WHERE max_running IS NOT NULL OR per_second IS NOT NULL
      OR max_running_per_collection IS NOT NULL
    ORDER BY own.id
"""


class Limited(SQLiteBase, ORMLimited):
    def _lock_limits(self, type):
        # A transaction that has begun to write is alone.
        return True

    def _open_lanes(self, type, full, after, most):
        now = self.now()
        key = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        closed = self._closed(now)
        closed = replace(closed, pairs=closed.pairs | {(key, collection) for collection in full})
        served = [] if key is None else [(key, after)]
        found, cut = self._ready(served, as_text(now), closed, most)
        return [lane[1] for lane in found], [collection for _, collection in cut]

    def _buckets(self, types, *, daemon=None):
        asks = None if daemon is None else daemon.hex
        rows = self.select(_LIMITS, types=as_json(list(types)), daemon=asks)
        now = self.now()
        return [
            Bucket.of(
                Row(*columns, None if refilled is None else as_instant(refilled)),
                columns[1],
                now,
                held=held,
                own=own or 0,
                daemons=max(1, daemons),
            )
            for *columns, refilled, held, own, daemons in map(_counted, rows)
        ] + self._guards(types)


def _counted(row):
    *columns, counts, daemons = row
    return *columns, *json.loads(counts), daemons
