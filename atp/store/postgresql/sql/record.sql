-- Record moves of Instances that the daemon holds, fenced by holder and attempt. The statement
-- returns the keys of the Instances that it wrote; an Instance whose Task the daemon no longer
-- holds under this attempt is not among them.
--
-- Each Instance comes once, with the sum of its events; each event comes once more for the log.
-- Tasks are found by their key, and locked in the order of their keys. These Instances are neither
-- written nor returned either:
-- - an Instance that goes back to the queue and is asked to be cancelled: the portable store does
--   that. All other asks to the holder were about this attempt, and end with it.
-- - an Instance that ends and is a node of a graph, unless the caller has locked the node and
--   settles its end: "ends" is "nodes".
-- - an Instance that ends and has hooks, unless the caller settles its end: "ends" is "hooked".
-- For each dead letter this inserts a row that is counted in its error group later: such an INSERT
-- collides with no other. For "= ANY (ARRAY[key])" see claim.sql.
--
-- Locks: the Tasks, in the order of their keys (waits); then their Instances (waits).
--
-- Cost of a Task: 4 rows written, 1 locked, 3 looks at indexes, if it is a dead letter.
WITH
source AS MATERIALIZED (
    SELECT * FROM unnest(
        %(instances)s::bigint[], %(attempts)s::int[], %(sources)s::text[], %(targets)s::text[],
        %(effects)s::text[], %(started)s::float8[], %(finished)s::float8[], %(reasons)s::text[],
        %(retries)s::int[], %(delays)s::float8[]
        , %(groups)s::bigint[], %(types)s::text[], %(fingerprints)s::text[]
        , %(versions)s::int[], %(exceptions)s::text[], %(titles)s::text[]
    ) AS source (
        id, attempt, sources, target, effect, started, finished, reason, retries, delay
        , "group", type, fingerprint, version, exception, title
    )
),
held AS MATERIALIZED (
    SELECT source.*, task.type_id
    FROM source JOIN atp_task task ON task.instance_id = ANY (ARRAY[source.id])
    WHERE task.attempt = ANY (ARRAY[source.attempt])
      AND coalesce(task.daemon_id, 0) = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
      AND NOT (source.effect = 'freed' AND task.request = 'cancel')
      AND (source.effect <> 'deleted' OR CASE %(ends)s
          WHEN 'plain' THEN task.waits IS NULL WHEN 'hooked' THEN task.waits < 0 ELSE true
      END)
    -- Not by the Task's own key: the planner would use the index on that key to sort.
    ORDER BY source.id
    FOR UPDATE OF task
),
moved AS (
    UPDATE atp_instance instance
    SET state = source.target,
        started = coalesce(to_timestamp(source.started), instance.started),
        finished = to_timestamp(source.finished),
        reason = source.reason,
        retries = instance.retries + source.retries,
        error_id = source."group",
        progress = CASE
            WHEN source.target = 'FINISHED' THEN 1
            WHEN source.started IS NOT NULL THEN NULL
            ELSE instance.progress
        END,
        progress_message = CASE
            WHEN source.started IS NOT NULL THEN '' ELSE instance.progress_message
        END
    FROM held source
    WHERE instance.id = ANY (ARRAY[source.id])
      AND instance.type_id = ANY (ARRAY[source.type_id, source.type_id])
      AND instance.state = ANY (source.sources::text[])
    RETURNING instance.id, instance.started, source.effect, source.delay
        , instance.uuid
),
failed AS (
    INSERT INTO atp_failure (
        "group", type, fingerprint, version, exception, title, instance, time
    )
    SELECT "group", type, decode(fingerprint, 'hex'), version, exception, title,
        moved.uuid, to_timestamp(source.finished)
    FROM source JOIN moved USING (id) WHERE "group" IS NOT NULL
    ORDER BY source.id
),
deleted AS (
    DELETE FROM atp_task task USING moved
    WHERE task.instance_id = ANY (ARRAY[moved.id]) AND moved.effect = 'deleted'
),
freed AS (
    UPDATE atp_task task
    SET daemon_id = NULL,
        due_at = coalesce(clock_timestamp() + moved.delay * interval '1 second', task.due_at),
        request = '',
        start_before = CASE WHEN moved.started IS NULL THEN task.start_before END
    FROM moved
    WHERE task.instance_id = ANY (ARRAY[moved.id]) AND moved.effect = 'freed'
),
responded AS (
    INSERT INTO atp_response (instance_id, content_type, data, file, size, files)
    SELECT response.id, response.content_type, response.data, response.file, response.size, '[]'
    FROM unnest(
        %(responding)s::bigint[], %(content_types)s::text[], %(data)s::bytea[],
        %(files)s::text[], %(sizes)s::bigint[]
    ) AS response (id, content_type, data, file, size)
    JOIN moved USING (id)
    ON CONFLICT (instance_id) DO UPDATE
    SET content_type = excluded.content_type, data = excluded.data,
        file = excluded.file, size = excluded.size
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message
        , detail
        )
    SELECT
        log.id, '', to_timestamp(log.time), log.event, log.state,
        log.attempt, log.level, log.who, log.message
        , log.detail
    FROM unnest(
        %(logged)s::bigint[], %(times)s::float8[], %(events)s::text[], %(states)s::text[],
        %(log_attempts)s::int[], %(levels)s::int[], %(whos)s::text[], %(messages)s::text[]
        , %(details)s::text[]
    ) WITH ORDINALITY AS log (
        id, time, event, state, attempt, level, who, message,
        detail,
        place
    )
    JOIN moved USING (id)
    ORDER BY log.place
)
SELECT id FROM moved
