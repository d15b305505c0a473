-- Return the lanes in which a Task has been due since "time" or longer, each with the highest
-- priority of such Tasks: walk atp_task_claim (LANES_ORDER of atp/querysets.py) from lane to
-- lane, like a claim, but take nothing.
--
-- Cost of a call: 0 rows written, 0 locked. It looks once
-- for each lane, and for each priority in a lane.
WITH RECURSIVE
level (type_id, collection, priority, due_at, steps) AS (
    SELECT type_id, NULL::text, NULL::int, NULL::timestamptz, 0
    FROM unnest(%(types)s::bigint[]) AS served (type_id)
  UNION ALL
    SELECT type_id, step.collection, step.priority, step.due_at, steps + 1
    FROM level CROSS JOIN LATERAL (
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.due_at > %(time)s::timestamptz
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection = level.collection AND priority < level.priority
            ORDER BY atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL AND collection > level.collection
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.collection IS NULL
              AND type_id = level.type_id AND daemon_id IS NULL
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
        LIMIT 1
    ) step
    WHERE steps < %(most)s::int
)
SELECT type_id, collection, priority FROM level
WHERE due_at <= %(time)s::timestamptz AND (type_id, collection) NOT IN (
    SELECT type_id, collection
    FROM unnest(%(closed_types)s::bigint[], %(closed)s::text[]) AS lane (type_id, collection)
)
LIMIT %(limit)s::int
