-- Claim one Task: the Task that claim.sql would claim first, if one look finds it.
--
-- This looks at the first Type in turn that has waiting Tasks; at its next lane behind the one
-- where the last claim ended, or else its first lane; and at the first Task of that lane
-- (LANES_ORDER of atp/querysets.py). Nothing is claimed if that Task is not due, is too late
-- to start, or is locked or claimed by somebody else; or if the Type has gates or limits, or a
-- downstream whose breaker is not closed. Then claim.sql finds other Tasks. An idle daemon that
-- has just been told of a new Task uses this, since the server has so much less to execute.
--
-- Locks: the row of the daemon (KEY SHARE, waits); then the Task, if it is free; then its
-- Instance (waits).
--
-- Cost of a call: 3 rows written, 2 locked, 9 looks at indexes.
WITH
daemon AS MATERIALIZED (
    -- A session that takes this daemon's identity away locks and deletes its row: this waits for it,
    -- and then finds no row. A daemon with a file lock ("lock") has no lease that could be over.
    SELECT id, host || ':' || pid AS name, clock_timestamp() AS now
    FROM atp_daemon
    WHERE uuid = %(daemon)s::uuid AND (lock <> '' OR lease_until > clock_timestamp())
    FOR KEY SHARE
),
first AS MATERIALIZED (
    SELECT type.id AS type_id, waiting.*
    FROM daemon
    CROSS JOIN unnest(
        %(types)s::text[], %(afters)s::text[]
    ) WITH ORDINALITY AS served (identifier, after, turn)
    JOIN atp_type type USING (identifier)
    CROSS JOIN LATERAL (
        (
            SELECT instance_id, due_at, start_before FROM atp_task
            WHERE type_id = type.id AND daemon_id IS NULL AND collection > served.after
            ORDER BY collection, priority DESC, due_at, instance_id LIMIT 1
        )
      UNION ALL
        (
            SELECT instance_id, due_at, start_before FROM atp_task
            WHERE type_id = type.id AND daemon_id IS NULL AND collection <= served.after
            ORDER BY collection, priority DESC, due_at, instance_id LIMIT 1
        )
        LIMIT 1
    ) waiting
    ORDER BY served.turn
    LIMIT 1
),
picked AS MATERIALIZED (
    SELECT task.row
    FROM daemon, first CROSS JOIN LATERAL (
        SELECT ctid AS row FROM atp_task
        WHERE instance_id = first.instance_id AND daemon_id IS NULL
          AND due_at = first.due_at AND start_before IS NOT DISTINCT FROM first.start_before
          AND type_id = first.type_id
        FOR UPDATE SKIP LOCKED
    ) task
    WHERE first.due_at <= daemon.now
      AND (first.start_before IS NULL OR first.start_before > daemon.now)
      AND NOT EXISTS (SELECT FROM atp_gate WHERE type_id IS NULL OR type_id = first.type_id)
      AND NOT EXISTS (
          SELECT FROM atp_limit
          WHERE type_id = first.type_id AND (max_running IS NOT NULL OR per_second IS NOT NULL
              OR max_running_per_collection IS NOT NULL)
        UNION ALL
          SELECT FROM atp_downstream JOIN atp_type ON atp_type.downstream = atp_downstream.name
          WHERE atp_type.id = first.type_id AND atp_downstream.state <> 'closed'
      )
),
taken AS (
    UPDATE atp_task task
    SET daemon_id = daemon.id, attempt = task.attempt + 1, request = ''
    FROM picked, daemon
    WHERE task.ctid = picked.row
    RETURNING task.instance_id, task.type_id, task.attempt, task.due_at
),
moved AS (
    -- The Instance of a waiting Task is ACCEPTED: see claim.sql.
    UPDATE atp_instance instance
    SET state = 'SCHEDULED', attempt = taken.attempt
    FROM taken
    WHERE instance.id = ANY (ARRAY[taken.instance_id])
      AND instance.type_id = ANY (ARRAY[taken.type_id, taken.type_id])
    RETURNING instance.id, instance.uuid, instance.attempt, instance.identifier,
        instance.collection, instance.priority, instance.retries, instance.restarts,
        instance.lost, instance.own, instance.type_id, taken.due_at
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT moved.id, '', daemon.now, 'claim', 'SCHEDULED', moved.attempt, 20, daemon.name, ''
    FROM moved, daemon
)
SELECT
    1 AS place, date_part('epoch', moved.due_at), moved.type_id,
    moved.id, moved.uuid::text, moved.attempt, inputs.format, inputs.data, moved.identifier,
    moved.collection, moved.priority, moved.retries, moved.restarts, moved.lost,
    moved.own::text, date_part('epoch', daemon.now),
    (
        SELECT json_build_array(
            identifier, extract(epoch FROM timeout), max_retries, extract(epoch FROM backoff),
            extract(epoch FROM backoff_max), max_restarts, max_memory, coalesce((
                SELECT weight FROM atp_limit WHERE type_id = moved.type_id AND collection IS NULL
            ), 1)
        )::text
        FROM atp_type WHERE id = moved.type_id
    )
FROM daemon, moved JOIN atp_inputs inputs ON inputs.instance_id = ANY (ARRAY[moved.id])
