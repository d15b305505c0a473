"""What waits, by the first entries of indexes: what is ready, when something is due."""

from .base import SQLiteBase

# Indexes are named, here and in lanes: statistics that were gathered while the
# queue was empty, or full, would make other plans look better.
_LATE = """
    SELECT 1 FROM atp_task INDEXED BY atp_task_missed
    WHERE daemon_id IS NULL AND start_before IS NOT NULL AND start_before <= %(now)s
    LIMIT 1
"""

# The priorities of each Type, from the highest down to the first at which
# something is due. What is first of a priority in atp_task_claim (type, priority,
# due_at, instance; only what waits) is due first. So a priority of which all is
# dated in the future takes two steps in the index, however much it is.
_LEVELS = """
    WITH RECURSIVE level (type_id, priority) AS (
        SELECT id, (
            SELECT priority FROM atp_task INDEXED BY atp_task_claim
            WHERE type_id = atp_type.id AND daemon_id IS NULL
            ORDER BY priority DESC LIMIT 1
        )
        FROM atp_type WHERE identifier IN (SELECT value FROM json_each(%(types)s))
      UNION ALL
        SELECT type_id, (
            SELECT priority FROM atp_task INDEXED BY atp_task_claim
            WHERE type_id = level.type_id AND daemon_id IS NULL AND priority < level.priority
            ORDER BY priority DESC LIMIT 1
        )
        FROM level WHERE (
            SELECT due_at FROM atp_task INDEXED BY atp_task_claim
            WHERE type_id = level.type_id AND daemon_id IS NULL AND priority = level.priority
            ORDER BY due_at LIMIT 1
        ) > %(now)s
    ),
    first (type_id, priority, due_at) AS (
        SELECT type_id, priority, (
            SELECT due_at FROM atp_task INDEXED BY atp_task_claim
            WHERE type_id = level.type_id AND daemon_id IS NULL AND priority = level.priority
            ORDER BY due_at LIMIT 1
        )
        FROM level
    )
"""
_READY = """
    SELECT type.id, first.priority, type.identifier, type.timeout, type.max_retries,
        type.backoff, type.backoff_max, type.max_restarts, type.max_memory
    FROM first CROSS JOIN atp_type type ON type.id = first.type_id
    WHERE first.due_at <= %(now)s
    ORDER BY type.id
"""
_DUE = "SELECT min(due_at) FROM first"


class Waiting(SQLiteBase):
    """``types`` are identifiers as JSON, ``now`` and what is returned are texts."""

    def _ready(self, types, now):
        """The Types that have something due, each with the highest priority at which it has."""
        return self.run(_LEVELS + _READY, types=types, now=now).fetchall()

    def _first_due(self, types, now):
        """When the next Task is due, or some time at which one was; None if none waits."""
        return self.run(_LEVELS + _DUE, types=types, now=now).fetchone()[0]

    def _is_late(self, now):
        """Whether something waits that was to be started earlier."""
        return self.run(_LATE, now=now).fetchone() is not None
