-- Claim due Tasks: an even share of each Type that has some, then whatever fits.
--
-- A look at a Type walks atp_task_claim (type, priority, due_at, instance; only
-- what waits) priority by priority. So what is dated in the future never lies
-- in front of what is due, whatever its priority. Where rows that are gone cannot
-- be forgotten, because another session still might see them, they lie in front of
-- what is due, and each look has to step over them. Then "floors" and "dues"
-- say for a Type at which priority and due time the last claim ended, and what comes
-- before that in this priority is left for a later look. Where a look is a scalar
-- subquery, it is so that the planner cannot make one join over all of them. Each
-- step hands on what the next ones need: two steps are never joined with each
-- other, which a plan that expects few rows would do in quadratic time. And where
-- rows are looked up, "= ANY (ARRAY[key])" is what an index serves and what no hash
-- or merge join can: whatever the planner believes of it, a table is never read
-- from end to end.
WITH RECURSIVE
daemon AS MATERIALIZED (
    -- Whoever ends this identity locks its row: afterwards this finds none.
    SELECT id, host || ':' || pid AS name, clock_timestamp() AS now
    FROM atp_daemon
    WHERE uuid = %(daemon)s::uuid AND (lock <> '' OR lease_until > clock_timestamp())
    FOR KEY SHARE
),
level (type_id, turn, priority, floor, due) AS (
    SELECT type.id, served.turn, CASE
        WHEN floor IS NULL THEN (
            SELECT max(priority) FROM atp_task WHERE type_id = type.id AND daemon_id IS NULL
        )
        ELSE coalesce((
            SELECT max(priority) FROM atp_task
            WHERE type_id = type.id AND daemon_id IS NULL AND priority > served.floor
        ), floor)
    END, floor, to_timestamp(due)
    FROM daemon
    CROSS JOIN unnest(
        %(types)s::text[], %(floors)s::int[], %(dues)s::float8[]
    ) WITH ORDINALITY AS served (identifier, floor, due, turn)
    JOIN atp_type type USING (identifier)
  UNION ALL
    SELECT type_id, turn, CASE
        WHEN floor IS NULL OR priority <= floor THEN (
            SELECT max(priority) FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL AND priority < level.priority
        )
        ELSE coalesce((
            SELECT max(priority) FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL
              AND priority < level.priority AND priority > level.floor
        ), floor)
    END, floor, due
    FROM level WHERE priority IS NOT NULL
),
bounded AS (
    SELECT type_id, turn, priority,
        CASE WHEN priority = floor THEN due ELSE '-infinity' END AS due
    FROM level WHERE priority IS NOT NULL
),
ready AS MATERIALIZED (
    SELECT type_id, array_agg(priority ORDER BY priority DESC) AS priorities,
        array_agg(due ORDER BY priority DESC) AS dues,
        ceil(%(limit)s::numeric / count(*) OVER ())::int AS share,
        row_number() OVER (ORDER BY min(turn)) AS turn,
        (
            SELECT json_build_array(
                identifier, extract(epoch FROM timeout), max_retries, extract(epoch FROM backoff),
                extract(epoch FROM backoff_max), max_restarts, max_memory
            )::text
            FROM atp_type WHERE id = type_id
        ) AS parameters
    FROM bounded
    WHERE (
        SELECT due_at FROM atp_task
        WHERE type_id = bounded.type_id AND daemon_id IS NULL AND priority = bounded.priority
          AND due_at >= bounded.due
        ORDER BY due_at LIMIT 1
    ) <= (SELECT now FROM daemon)
    GROUP BY type_id
),
shared AS MATERIALIZED (
    SELECT found.*
    FROM (SELECT * FROM ready ORDER BY turn) ready CROSS JOIN LATERAL (
        SELECT task.instance_id, ready.turn, task.due_at, ready.parameters
        FROM unnest(ready.priorities, ready.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            SELECT instance_id, priority, due_at FROM atp_task
            WHERE type_id = ready.type_id AND daemon_id IS NULL
              AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
            ORDER BY due_at, instance_id
            LIMIT ready.share
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT ready.share
    ) found
    LIMIT %(limit)s::int
),
lacking AS MATERIALIZED (
    SELECT %(limit)s::int - count(*) AS number FROM shared
),
further AS MATERIALIZED (
    -- More of those that had more than their share.
    SELECT found.*
    FROM (
        SELECT * FROM ready
        WHERE share <= (SELECT count(*) FROM shared WHERE shared.turn = ready.turn)
        ORDER BY turn
    ) ready CROSS JOIN LATERAL (
        SELECT task.instance_id, ready.turn, task.due_at, ready.parameters
        FROM unnest(ready.priorities, ready.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            SELECT instance_id, priority, due_at FROM atp_task
            WHERE type_id = ready.type_id AND daemon_id IS NULL
              AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
              AND instance_id NOT IN (SELECT instance_id FROM shared)
            ORDER BY due_at, instance_id
            LIMIT (SELECT number FROM lacking)
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT (SELECT number FROM lacking)
    ) found
    WHERE (SELECT number FROM lacking) > 0
    LIMIT (SELECT number FROM lacking)
),
picked AS MATERIALIZED (
    SELECT * FROM shared UNION ALL SELECT * FROM further
),
taken AS (
    UPDATE atp_task task
    SET daemon_id = daemon.id, attempt = task.attempt + 1, request = ''
    FROM picked, daemon
    WHERE task.instance_id = ANY (ARRAY[picked.instance_id])
    RETURNING task.instance_id, task.attempt, picked.turn, picked.due_at, picked.parameters
),
moved AS (
    -- A Task that waits is that of an ACCEPTED Instance. Its state is not asked
    -- here: the version of the row that this statement sees may be an older one
    -- than that of the Task, which was looked at again when it was locked.
    UPDATE atp_instance instance
    SET state = 'SCHEDULED', attempt = taken.attempt
    FROM taken
    WHERE instance.id = ANY (ARRAY[taken.instance_id])
    RETURNING instance.id, instance.uuid, instance.attempt, instance.identifier,
        instance.collection, instance.priority, instance.retries, instance.restarts,
        instance.lost, taken.turn, taken.due_at, taken.parameters
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, event, state, attempt, level, who, message)
    SELECT moved.id, '', daemon.now, 'claim', 'SCHEDULED', moved.attempt, 20, daemon.name, ''
    FROM moved, daemon
)
SELECT
    extract(epoch FROM daemon.now)::float8, daemon.name,
    (
        SELECT start_before <= daemon.now FROM atp_task
        WHERE daemon_id IS NULL AND start_before IS NOT NULL
        ORDER BY start_before LIMIT 1
    ) AS late,
    moved.id, moved.uuid::text, moved.attempt, inputs.format, inputs.data, moved.identifier,
    moved.collection, moved.priority, moved.retries, moved.restarts, moved.lost, moved.parameters,
    extract(epoch FROM moved.due_at)::float8
FROM daemon
LEFT JOIN (
    moved JOIN atp_inputs inputs ON inputs.instance_id = ANY (ARRAY[moved.id])
) ON true
ORDER BY moved.turn, moved.priority DESC, moved.due_at, moved.id
