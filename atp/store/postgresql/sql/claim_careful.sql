-- Claim like claim.sql, but wait for no lock of another session: step over locked Instances, and
-- lock the daemon's row or its spare lease, whichever is free. All else is explained there.
--
-- Locks: the row of the daemon and its spare lease (KEY SHARE), each only if it is free; then the
-- Instance of each Task before the Task itself, stepping over what others have locked.
--
-- Cost of a Task: 3 rows written, 2 locked, 3 looks at indexes. The walk adds a look for each
-- lane, and for each priority in a lane.
WITH RECURSIVE
own_row AS MATERIALIZED (
    SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid
    FOR KEY SHARE SKIP LOCKED
),
spare_lease AS MATERIALIZED (
    SELECT daemon_id FROM atp_sparelease
    WHERE daemon_id = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
    FOR KEY SHARE SKIP LOCKED
),
daemon AS MATERIALIZED (
    -- A session that takes this daemon's identity away locks and deletes its row and its spare lease.
    SELECT id, host || ':' || pid AS name, clock_timestamp() AS now
    FROM atp_daemon
    WHERE uuid = %(daemon)s::uuid
      AND (id = (SELECT id FROM own_row) OR id = (SELECT daemon_id FROM spare_lease))
      AND (lock <> '' OR greatest(lease_until, (
          SELECT until FROM atp_sparelease WHERE daemon_id = atp_daemon.id
      )) > clock_timestamp())
),
closed AS MATERIALIZED (
    -- Types and lanes with a gate (hold or drop), and limited ones, which are claimed apart.
    SELECT type_id, collection, false AS is_limit FROM atp_gate CROSS JOIN daemon
    WHERE until IS NULL OR until > daemon.now
  UNION ALL
    SELECT type_id, collection, true FROM atp_limit
    WHERE max_running IS NOT NULL OR per_second IS NOT NULL
      OR max_running_per_collection IS NOT NULL
  UNION ALL
    -- Types with a downstream whose breaker is not closed: it refuses calls, or fails.
    SELECT atp_type.id, NULL, true
    FROM atp_downstream JOIN atp_type ON atp_type.downstream = atp_downstream.name
    WHERE atp_downstream.state <> 'closed'
),
served AS MATERIALIZED (
    SELECT type.id, served.identifier, served.after, served.turn
    FROM daemon
    CROSS JOIN unnest(
        %(types)s::text[], %(afters)s::text[]
    ) WITH ORDINALITY AS served (identifier, after, turn)
    JOIN atp_type type USING (identifier)
    WHERE NOT EXISTS (
        SELECT FROM closed
        WHERE closed.collection IS NULL AND (closed.type_id IS NULL OR closed.type_id = type.id)
          AND NOT (closed.is_limit AND %(limited)s)
    )
    ORDER BY served.turn
),
known AS MATERIALIZED (
    SELECT served.id AS type_id, served.turn, lane.turn AS number, lane.collection, lane.floor,
        to_timestamp(lane.due) AS due, lane.cap,
        lead(lane.collection) OVER (PARTITION BY served.id ORDER BY lane.collection) AS next
    FROM unnest(
        %(lane_types)s::text[], %(lanes)s::text[], %(floors)s::int[], %(dues)s::float8[],
        %(caps)s::int[]
    ) WITH ORDINALITY AS lane (identifier, collection, floor, due, cap, turn)
    JOIN served USING (identifier)
    ORDER BY served.turn, lane.turn
),
level (
    type_id, turn, number, way, bound, collection, priority, due_at,
    floor, due,
    steps, is_ready, ready
) AS (
    -- Ways: "all" begins behind the last lane and comes round to it, "bound"; "one" walks a known
    -- lane; "gap" goes from a known lane to the next one, "bound", or to the end if there is none.
    -- "all" and "gap" begin without a priority, "one" above all priorities. "ready" is the number
    -- of finds before this step.
    (
        SELECT id AS type_id, turn, 0::bigint AS number, 'all' AS way, after AS bound,
            after AS collection, NULL::int AS priority, NULL::timestamptz AS due_at,
            NULL::int AS floor, NULL::timestamptz AS due,
            0 AS steps, false AS is_ready, 0 AS ready
        FROM served WHERE %(walks)s
      UNION ALL
        SELECT type_id, turn, number, 'one', NULL, collection, 1000, NULL,
            floor, due,
            0, false, 0
        FROM known
        WHERE NOT %(walks)s
      UNION ALL
        SELECT type_id, turn, number, 'gap', next, collection, NULL, NULL, NULL, NULL,
            0, false, 0
        FROM known
        WHERE %(gaps)s
    )
  UNION ALL
    SELECT type_id, turn, number, way, bound, step.collection, step.priority, step.due_at,
        floor, due,
        steps + 1, step.is_ready, ready + level.is_ready::int
    FROM level CROSS JOIN LATERAL (
        SELECT *, due_at <= (SELECT now FROM daemon)
            AND (level.type_id, collection) NOT IN (
                SELECT type_id, collection FROM closed
                WHERE collection IS NOT NULL AND NOT is_limit
            )
            AND ((level.type_id, collection) NOT IN (
                SELECT type_id, collection FROM closed WHERE collection IS NOT NULL AND is_limit
            ) OR %(limited)s AND (level.type_id, collection) IN (
                SELECT type_id, collection FROM known
            )) AS is_ready
        FROM (
        -- The next lower priority: first above the one where the last claim ended, then there, then
        -- below.
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL
              AND collection = level.collection
              AND priority < level.priority AND priority > level.floor
            ORDER BY atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.priority > level.floor
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection = level.collection
              AND priority = level.floor AND due_at >= level.due
            ORDER BY due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL
              AND collection = level.collection
              AND priority < least(level.priority
                  , level.floor
              )
            ORDER BY atp_task.priority DESC, due_at LIMIT 1
        )
        -- The next lane.
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE CASE level.way
                WHEN 'all' THEN level.priority IS NULL OR level.collection > level.bound
                WHEN 'gap' THEN level.bound IS NULL
              END
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection > level.collection
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.way = 'all' AND (level.priority IS NULL OR level.collection > level.bound)
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection <= level.bound
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.way = 'all' AND level.collection <= level.bound
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection > level.collection AND collection <= level.bound
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.way = 'gap'
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection > level.collection AND collection < level.bound
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
        LIMIT 1
        ) first
    ) step
    WHERE steps < %(most)s::int AND ready + level.is_ready::int < %(enough)s::int
),
found AS MATERIALIZED (
    -- The first find of the walk in each Type, then the second one of each, …
    SELECT type_id, turn, collection, priority,
        CASE WHEN %(limited)s THEN (
            SELECT cap FROM known
            WHERE known.type_id = level.type_id AND known.collection = level.collection
        ) END AS cap,
        CASE WHEN priority = floor THEN due ELSE
        '-infinity'::timestamptz
        END
        AS due,
        row_number() OVER (ORDER BY ready, turn, number) AS place
    FROM level
    WHERE is_ready
    ORDER BY ready, turn, number
    LIMIT %(finds)s::int
),
ready AS MATERIALIZED (
    SELECT type_id, turn, collection, cap, min(place) AS place,
        array_agg(priority ORDER BY place) AS priorities, array_agg(due ORDER BY place) AS dues
    FROM found GROUP BY type_id, turn, collection, cap
),
weighed AS MATERIALIZED (
    SELECT *, sum(weight) OVER (ORDER BY turn) / sum(weight) OVER () AS until,
        weight / sum(weight) OVER () AS part
    FROM (
        SELECT type_id, turn, coalesce((
            SELECT weight FROM atp_limit WHERE type_id = ready.type_id AND collection IS NULL
        ), 1) AS weight
        FROM ready GROUP BY type_id, turn
    ) types
),
entitled AS MATERIALIZED (
    SELECT type_id,
        ceil(%(limit)s::int * until - 1e-6) - ceil(%(limit)s::int * (until - part) - 1e-6)
            AS share,
        date_part('epoch', clock_timestamp() - (SELECT now FROM daemon)) AS looked,
        (
            SELECT json_build_array(
                identifier, extract(epoch FROM timeout), max_retries, extract(epoch FROM backoff),
                extract(epoch FROM backoff_max), max_restarts, max_memory, weight
            )::text
            FROM atp_type WHERE id = type_id
        ) AS parameters
    FROM weighed
),
lane AS MATERIALIZED (
    SELECT ready.type_id, collection, place, cap, priorities, dues,
        least(cap, greatest((
            ceil(share * row_number() OVER own / count(*) OVER lanes - 1e-6)
            - ceil(share * (row_number() OVER own - 1) / count(*) OVER lanes - 1e-6)
        )::int, (%(finds)s::int > %(limit)s::int)::int)) AS share
    FROM ready JOIN entitled ON entitled.type_id = ready.type_id
    WINDOW own AS (PARTITION BY ready.type_id ORDER BY place),
        lanes AS (PARTITION BY ready.type_id)
    ORDER BY place
),
shared AS MATERIALIZED (
    SELECT found.*
    FROM (SELECT * FROM lane WHERE share > 0 ORDER BY place) lane CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            SELECT ctid AS row, instance_id FROM atp_task
            WHERE type_id = lane.type_id AND daemon_id IS NULL
              AND collection = lane.collection AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
              AND EXISTS (
                  SELECT FROM atp_instance WHERE id = ANY (ARRAY[instance_id])
                  FOR NO KEY UPDATE SKIP LOCKED
              )
            ORDER BY due_at, instance_id
            LIMIT lane.share
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT lane.share
    ) found
    LIMIT %(limit)s::int
),
-- A lane that gave all of its share may have more Tasks. Lanes with a cap give no more.
lacking AS MATERIALIZED (
    SELECT %(limit)s::int - count(*) AS number FROM shared
),
more AS MATERIALIZED (
    SELECT * FROM lane
    WHERE cap IS NULL AND (SELECT number FROM lacking) > 0 AND (share = 0 OR (place, share) IN (
        SELECT place, count(*) FROM shared GROUP BY place
    ))
    ORDER BY place
),
own AS MATERIALIZED (
    SELECT found.*
    FROM (
        SELECT type_id, least(sum(share) - (
            SELECT count(*) FROM shared WHERE type_id = lane.type_id
        ), (SELECT number FROM lacking)) AS number
        FROM lane
        WHERE (SELECT number FROM lacking) > 0
        GROUP BY type_id
    ) lacks CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM (SELECT * FROM more WHERE type_id = lacks.type_id ORDER BY place) lane
        CROSS JOIN LATERAL unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            SELECT ctid AS row, instance_id FROM atp_task
            WHERE type_id = lane.type_id AND daemon_id IS NULL
              AND collection = lane.collection AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
              AND EXISTS (
                  SELECT FROM atp_instance WHERE id = ANY (ARRAY[instance_id])
                  FOR NO KEY UPDATE SKIP LOCKED
              )
              AND instance_id NOT IN (SELECT instance_id FROM shared)
            ORDER BY due_at, instance_id
            LIMIT lacks.number
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT lacks.number
    ) found
    WHERE lacks.number > 0
    LIMIT (SELECT number FROM lacking)
),
left_over AS MATERIALIZED (
    SELECT lacking.number - (SELECT count(*) FROM own) AS number FROM lacking
),
further AS MATERIALIZED (
    SELECT found.*
    FROM more AS lane CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            SELECT ctid AS row, instance_id FROM atp_task
            WHERE type_id = lane.type_id AND daemon_id IS NULL
              AND collection = lane.collection AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
              AND EXISTS (
                  SELECT FROM atp_instance WHERE id = ANY (ARRAY[instance_id])
                  FOR NO KEY UPDATE SKIP LOCKED
              )
              AND instance_id NOT IN (SELECT instance_id FROM shared)
              AND instance_id NOT IN (SELECT instance_id FROM own)
            ORDER BY due_at, instance_id
            LIMIT (SELECT number FROM left_over)
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT (SELECT number FROM left_over)
    ) found
    WHERE (SELECT number FROM left_over) > 0
    LIMIT (SELECT number FROM left_over)
),
taken AS (
    -- A locked row stays at its ctid, and this UPDATE finds it there. A row that came to its ctid
    -- after this statement began, since its Task was handed back just then, is invisible to this
    -- UPDATE: the Task has "slipped" away, and the next look may claim it.
    UPDATE atp_task task
    SET daemon_id = daemon.id, attempt = task.attempt + 1, request = ''
    FROM daemon, (
        SELECT row, place FROM shared
        UNION ALL SELECT row, place FROM own
        UNION ALL SELECT row, place FROM further
    ) picked
    WHERE task.ctid = picked.row
    RETURNING task.instance_id, task.type_id, task.attempt, task.due_at, picked.place
),
moved AS (
    -- The Instance of a waiting Task is ACCEPTED. This does not check the state: this statement
    -- may see a version of the Instance's row that is older than that of the Task's row, which
    -- was read again when it was locked.
    UPDATE atp_instance instance
    SET state = 'SCHEDULED', attempt = taken.attempt
    FROM taken
    WHERE instance.id = ANY (ARRAY[taken.instance_id])
      AND instance.type_id = ANY (ARRAY[taken.type_id, taken.type_id])
    RETURNING instance.id, instance.uuid, instance.attempt, instance.identifier,
        instance.collection, instance.priority, instance.retries, instance.restarts,
        instance.lost, instance.own, instance.type_id, taken.place, taken.due_at
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT moved.id, '', daemon.now, 'claim', 'SCHEDULED', moved.attempt, 20, daemon.name, ''
    FROM moved, daemon
)
-- The first row is about the claim itself: its time in place of the due time, and its other facts
-- in place of the inputs. Its place is before all others.
SELECT
    0 AS place, date_part('epoch', daemon.now) AS due, NULL::bigint AS type,
    NULL::bigint AS id, NULL::text AS uuid, NULL::int AS attempt, NULL::text AS format,
    json_build_object(
        'name', daemon.name,
        'late', (
            SELECT start_before <= daemon.now FROM atp_task
            WHERE daemon_id IS NULL AND start_before IS NOT NULL
            ORDER BY start_before LIMIT 1
        ),
        'types', coalesce((SELECT json_object_agg(type_id, parameters) FROM entitled), '{}'),
        -- The time in seconds that it took to find the due Tasks.
        'looked', (SELECT max(looked) FROM entitled),
        -- The length of the walk; 0 if it may have stopped because it had found enough.
        'steps', CASE WHEN (SELECT count(*) FROM found) < %(finds)s::int
            THEN (SELECT count(*) FROM level) ELSE 0
        END,
        -- The lanes where the walk was broken off after "most" steps, without enough finds.
        'cut', CASE WHEN (SELECT count(*) FROM found) < %(finds)s::int THEN (
            SELECT json_agg(json_build_array(identifier, collection))
            FROM level JOIN served ON served.id = level.type_id
            WHERE level.steps = %(most)s::int AND way = 'all'
        ) END,
        -- The same of Types in which the walk has found nothing, also if others had enough finds.
        'barren', (
            SELECT json_agg(json_build_array(identifier, collection))
            FROM level JOIN served ON served.id = level.type_id
            WHERE level.steps = %(most)s::int AND way = 'all' AND ready = 0 AND NOT is_ready
        ),
        'limited', (
            SELECT json_agg(identifier) FROM atp_type
            WHERE id = ANY (ARRAY(SELECT DISTINCT type_id FROM closed WHERE is_limit))
        ),
        -- The number of Tasks that were locked, but not claimed after all.
        'slipped', (SELECT count(*) FROM shared) + (SELECT count(*) FROM own)
            + (SELECT count(*) FROM further) - (SELECT count(*) FROM taken)
    )::text AS data,
    NULL::text AS identifier, NULL::text AS collection, NULL::smallint AS priority,
    NULL::int AS retries, NULL::int AS restarts, NULL::int AS lost,
    NULL::text AS own
FROM daemon
UNION ALL
SELECT
    moved.place, date_part('epoch', moved.due_at), moved.type_id,
    moved.id, moved.uuid::text, moved.attempt, inputs.format, inputs.data, moved.identifier,
    moved.collection, moved.priority, moved.retries, moved.restarts, moved.lost,
    moved.own::text
FROM moved JOIN atp_inputs inputs ON inputs.instance_id = ANY (ARRAY[moved.id])
