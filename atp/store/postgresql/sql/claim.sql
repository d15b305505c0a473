-- Claim due Tasks, in three parts: walk finds due Tasks, lane by lane; share divides the limit of
-- the claim between Types and lanes; take locks the Tasks, in CLAIMING_ORDER of
-- atp/querysets.py. The rest of this file says who claims, which Types and lanes may be
-- claimed, and what is written.
--
-- Limited Types and lanes are claimed apart, after the daemon has looked at the limits: it says
-- that by "limited". Then "lanes" are the lanes that have limits of their own and room for more
-- Tasks, and "caps" say how many. If the whole Type is limited, all of its lanes are walked
-- ("walks"), otherwise only "lanes".
--
-- About the planner:
-- - A look at the index is often a scalar subquery, so that the planner cannot make one join over
--   all looks.
-- - Each step passes on all that the later steps need. Steps that have a row for each Task are
--   never joined with each other: a plan that expects few rows would do that in quadratic time.
-- - Rows are looked up by "= ANY (ARRAY[key])". An index can serve that, a hash join or a merge
--   join cannot. So a table is never read from end to end, whatever the planner believes of it.
-- - Instances are looked up by their Type too. While there are few Instances, the index that
--   begins with the Type looks as good to the planner as the index on the key. Without the Type,
--   it would walk that index from end to end for each Instance.
-- - The Type is said twice for the planner up to PostgreSQL 16, which might look up the Type
--   there without the key: two look-ups seem to cost more than one by the key.
--
-- The walk ends with so many "finds", which are lanes and priorities with due Tasks. At first these
-- are as many as the limit. If others have locked all Tasks of some finds, the claim is repeated
-- with more finds.
--
-- A "careful" claim waits for no lock of another session: it steps over locked Instances, and it
-- locks the daemon's row or its spare lease, whichever is free. Other claims leave out the lines
-- that are "only with careful".
WITH RECURSIVE
own_row AS MATERIALIZED ( -- only with careful
    SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid -- only with careful
    FOR KEY SHARE SKIP LOCKED -- only with careful
), -- only with careful
spare_lease AS MATERIALIZED ( -- only with careful
    SELECT daemon_id FROM atp_sparelease -- only with careful
    WHERE daemon_id = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid) -- only with careful
    FOR KEY SHARE SKIP LOCKED -- only with careful
), -- only with careful
daemon AS MATERIALIZED (
    -- A session that ends this daemon's identity locks its row; afterwards this finds no row.
    SELECT id, host || ':' || pid AS name, clock_timestamp() AS now
    FROM atp_daemon
    WHERE uuid = %(daemon)s::uuid
      AND (lock <> '' OR lease_until > clock_timestamp()) -- only without careful
    FOR KEY SHARE -- only without careful
      AND (id = (SELECT id FROM own_row) OR id = (SELECT daemon_id FROM spare_lease)) -- only with careful
      AND (lock <> '' OR greatest(lease_until, ( -- only with careful
          SELECT until FROM atp_sparelease WHERE daemon_id = atp_daemon.id -- only with careful
      )) > clock_timestamp()) -- only with careful
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
-- include walk
-- include share
-- include take
taken AS (
    -- A locked row stays at its ctid, and this UPDATE finds it there. A row that came to its ctid
    -- after this statement began, since its Task was handed back just then, is invisible to this
    -- UPDATE: the Task is "missed", and the next look may claim it.
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
        'missed', (SELECT count(*) FROM shared) + (SELECT count(*) FROM own)
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
