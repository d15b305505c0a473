-- Return when there is work to do, and which: walk atp_task_claim (LANES_ORDER of
-- atp/querysets.py) from lane to lane and from priority to priority, like a claim, but take
-- nothing. Limited Tasks are returned apart: by Type, and by lane if the lane has a limit of its
-- own.
--
-- Cost of a call: 0 rows written, 0 locked. It looks once
-- for each lane, and for each priority in a lane.
WITH RECURSIVE
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
gate AS MATERIALIZED (
    SELECT type_id, collection, mode, until FROM atp_gate CROSS JOIN clock
    WHERE until IS NULL OR until > now
),
limited AS MATERIALIZED (
    SELECT type_id, collection FROM atp_limit
    WHERE max_running IS NOT NULL OR per_second IS NOT NULL
      OR max_running_per_collection IS NOT NULL
  UNION ALL
    SELECT atp_type.id, NULL
    FROM atp_downstream JOIN atp_type ON atp_type.downstream = atp_downstream.name
    WHERE atp_downstream.state <> 'closed'
),
level (type_id, collection, priority, due_at, steps) AS (
    SELECT type.id, NULL::text, NULL::int, NULL::timestamptz, 0
    FROM atp_type type
    WHERE identifier = ANY (%(types)s::text[]) AND NOT EXISTS (
        SELECT FROM gate
        WHERE gate.collection IS NULL AND (gate.type_id IS NULL OR gate.type_id = type.id)
    )
  UNION ALL
    SELECT type_id, step.collection, step.priority, step.due_at, steps + 1
    FROM level CROSS JOIN LATERAL (
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.due_at > (SELECT now FROM clock)
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
),
lane AS MATERIALIZED (
    -- The earliest due time, by the scope of the limit: the lane, its Type, or no limit.
    SELECT type_id, CASE WHEN own.is_limited THEN collection END AS collection,
        own.is_limited OR type_id IN (
            SELECT type_id FROM limited WHERE collection IS NULL
        ) AS is_limited,
        extract(epoch FROM min(due_at) - (SELECT now FROM clock))::float8 AS due
    FROM level CROSS JOIN LATERAL (
        SELECT (type_id, collection) IN (
            SELECT type_id, collection FROM limited WHERE collection IS NOT NULL
        ) AS is_limited OFFSET 0
    ) own
    WHERE priority IS NOT NULL AND (type_id, collection) NOT IN (
        SELECT type_id, collection FROM gate WHERE collection IS NOT NULL
    )
    GROUP BY 1, 2, 3
)
SELECT
    (SELECT min(due) FROM lane WHERE NOT is_limited),
    coalesce((
        SELECT start_before <= now FROM atp_task
        WHERE daemon_id IS NULL AND start_before IS NOT NULL
        ORDER BY start_before LIMIT 1
    ), false),
    EXISTS (
        SELECT FROM atp_daemon
        WHERE lock = '' AND lease_until <= now AND uuid IS DISTINCT FROM %(daemon)s::uuid
          AND NOT EXISTS (
              SELECT FROM atp_sparelease WHERE daemon_id = atp_daemon.id AND until > now
          )
    ),
    (SELECT request FROM atp_daemon WHERE uuid = %(daemon)s::uuid),
    -- The limited Types and lanes with waiting Tasks, and when these are due, limits aside.
    (
        SELECT json_agg(json_build_array(identifier, collection, due))::text
        FROM lane JOIN atp_type type ON type.id = lane.type_id
        WHERE is_limited
    ),
    -- When the first gate opens by itself, and whether a gate drops Tasks.
    (SELECT extract(epoch FROM min(until) - now)::float8 FROM gate),
    EXISTS (SELECT FROM gate WHERE mode = 'drop'),
    -- Whether the walk was broken off: then there may be more lanes.
    EXISTS (SELECT FROM level WHERE steps = %(most)s::int),
    -- When the first slot of a schedule is due.
    (
        SELECT extract(epoch FROM due_at - now)::float8 FROM atp_schedule
        WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1
    ),
    -- Whether graphs need upkeep: one has not ended, or nodes are to fail.
    EXISTS (SELECT FROM atp_graph WHERE ended IS NULL) OR EXISTS (SELECT FROM atp_failing),
    -- Whether a daemon has left records uncounted: there is a row for each identity that has.
    EXISTS (SELECT FROM atp_uncounted WHERE after < until)
FROM clock
