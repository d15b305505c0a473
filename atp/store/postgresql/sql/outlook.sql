-- What there is to do, and when: walks atp_task_claim priority by priority, like
-- a claim, and takes nothing.
WITH RECURSIVE
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
level (type_id, priority) AS (
    SELECT type.id, (
        SELECT max(priority) FROM atp_task WHERE type_id = type.id AND daemon_id IS NULL
    )
    FROM atp_type type WHERE identifier = ANY (%(types)s::text[])
  UNION ALL
    SELECT type_id, (
        SELECT max(priority) FROM atp_task
        WHERE type_id = level.type_id AND daemon_id IS NULL AND priority < level.priority
    )
    FROM level WHERE priority IS NOT NULL
)
SELECT
    (
        SELECT extract(epoch FROM min(first.due_at) - (SELECT now FROM clock))::float8
        FROM level CROSS JOIN LATERAL (
            SELECT due_at FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL AND priority = level.priority
            ORDER BY due_at LIMIT 1
        ) first
        WHERE priority IS NOT NULL
    ),
    coalesce((
        SELECT start_before <= now FROM atp_task
        WHERE daemon_id IS NULL AND start_before IS NOT NULL
        ORDER BY start_before LIMIT 1
    ), false),
    EXISTS (
        SELECT FROM atp_daemon
        WHERE lock = '' AND lease_until <= now AND uuid IS DISTINCT FROM %(daemon)s::uuid
    ),
    (SELECT request FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
FROM clock
