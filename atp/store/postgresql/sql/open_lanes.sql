-- Return the lanes of a Type in which a Task is due, except the lanes in "closed": walk
-- atp_task_claim (LANES_ORDER of atp/querysets.py) from lane to lane, from the one behind
-- "after" and round to it, and in a lane from priority to priority, but take nothing. If the walk
-- is broken off, the lane where it stopped is returned too.
--
-- Cost of a call: 0 rows written, 0 locked. It looks once
-- for each lane, and for each priority in a lane.
WITH RECURSIVE
type AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM atp_type WHERE identifier = %(type)s::text
),
level (collection, priority, due_at, steps, is_open, found) AS (
    SELECT %(after)s::text, NULL::int, NULL::timestamptz, 0, false, 0
  UNION ALL
    SELECT step.collection, step.priority, step.due_at, steps + 1,
        step.due_at <= (SELECT now FROM type) AND step.collection <> ALL (%(closed)s::text[]),
        found + is_open::int
    FROM level CROSS JOIN LATERAL (
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.due_at > (SELECT now FROM type)
              AND type_id = (SELECT id FROM type) AND daemon_id IS NULL
              AND collection = level.collection AND priority < level.priority
            ORDER BY atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE (level.priority IS NULL OR level.collection > %(after)s::text)
              AND type_id = (SELECT id FROM type) AND daemon_id IS NULL
              AND collection > level.collection
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE (level.priority IS NULL OR level.collection > %(after)s::text)
              AND type_id = (SELECT id FROM type) AND daemon_id IS NULL
              AND collection <= %(after)s::text
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.priority IS NOT NULL AND level.collection <= %(after)s::text
              AND type_id = (SELECT id FROM type) AND daemon_id IS NULL
              AND collection > level.collection AND collection <= %(after)s::text
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
        LIMIT 1
    ) step
    WHERE steps < %(most)s::int AND found + is_open::int < %(limit)s::int
)
SELECT collection, is_open, steps = %(most)s::int FROM level
WHERE is_open OR steps = %(most)s::int
ORDER BY steps
