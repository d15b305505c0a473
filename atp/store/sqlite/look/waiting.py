"""Waiting Tasks, seen through the first entries of indexes: ready lanes, and due times."""

from ....querysets import CLAIMING_ORDER
from ...rotation import enough_lanes, most_steps
from ...sorting import in_sql
from ..base import SQLiteBase, as_json, as_text

ALL = 2**31
# Tasks that are due at the same time may come in any order here.
_FIRST = in_sql(CLAIMING_ORDER[:-1])

# Indexes are named, here and in lane.py: with statistics from a time when the queue was empty, or
# full, the planner would choose others.

# The walk goes from lane to lane, all Types in turn: each Type from the lane behind "bound" on and
# round to it; in a lane from the highest priority down to the first with a due Task. A step is one
# look at the first entry of atp_task_claim (LANES_ORDER; waiting Tasks only). So a priority, or a
# lane, whose Tasks are all due later takes one step, however many they are. A row without a
# priority begins a Type. "ready" is the number of ready lanes found before.
_LEVELS = f"""
    WITH RECURSIVE level (
        type_id, turn, bound, collection, priority, due_at, steps, is_ready, ready
    ) AS (
        SELECT value ->> 0, key, value ->> 1, value ->> 1, NULL, NULL, 0, 0, 0
        FROM json_each(%(served)s)
      UNION ALL
        SELECT level.type_id, turn, bound, task.collection, task.priority, task.due_at, steps + 1,
            task.due_at <= %(now)s AND (task.type_id, task.collection) NOT IN (
                SELECT value ->> 0, value ->> 1 FROM json_each(%(closed)s)
            ),
            ready + is_ready
        FROM level CROSS JOIN atp_task task ON task.instance_id = coalesce(
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE level.due_at > %(now)s
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection = level.collection AND priority < level.priority
                ORDER BY {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE (level.priority IS NULL OR level.collection > bound)
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection > level.collection
                ORDER BY collection, {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE (level.priority IS NULL OR level.collection > bound)
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection <= bound
                ORDER BY collection, {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE level.priority IS NOT NULL AND level.collection <= bound
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection > level.collection AND collection <= bound
                ORDER BY collection, {_FIRST} LIMIT 1
            )
        )
        WHERE steps < %(most)s AND ready + is_ready < %(enough)s
    )
"""  # noqa: S608 (the claim order)
_READY = """
    SELECT type_id, collection, priority, is_ready, steps = %(most)s FROM level
    WHERE is_ready OR steps = %(most)s
    ORDER BY ready, turn
    LIMIT %(limit)s
"""
_DUE = """
    SELECT type_id, collection, min(due_at), max(steps) = %(most)s FROM level
    WHERE due_at NOT NULL GROUP BY 1, 2
"""


class Waiting(SQLiteBase):
    """Looks at waiting Tasks; ``now`` and all times returned are texts."""

    def _ready(self, served, now, closed, limit):
        """Return the lanes with due Tasks, and where the look was broken off.

        ``served`` are pairs: the key of a Type, and the collection to begin behind. A lane is a
        triple: Type's key, collection, highest priority with a due Task. The second value is a list
        of pairs like ``served``.
        """
        served = [pair for pair in served if not closed.shuts(pair[0])]
        limit = ALL if limit < 0 else limit
        rows = self.select(
            _LEVELS + _READY,
            served=as_json(served),
            closed=as_json(closed.lanes),
            now=now,
            limit=limit + len(served),
            enough=enough_lanes(limit, len(served)),
            most=most_steps(len(served)),
        )
        found = [tuple(row[:3]) for row in rows if row[3]]
        return found[:limit], [tuple(row[:2]) for row in rows if row[4]]

    def due_lanes(self, types, closed, time, limit):
        found, _ = self._ready([(key, "") for key in types], as_text(time), closed, limit)
        return found

    def _dues(self, served, now):
        """Return for each lane the time when a Task is due: the first one, or one that is due now.

        Each row also says whether the look was broken off in that lane.
        """
        return self.select(
            _LEVELS + _DUE,
            served=as_json([(key, "") for key in served]),
            closed="[]",
            now=now,
            enough=ALL,
            most=most_steps(len(served)),
        )
