-- Record moves like record.sql, if none is a dead letter and none has a detail.
--
-- Locks: the Tasks, in the order of their keys (waits); then their Instances (waits).
--
-- Cost of a Task: 2 rows written, 1 locked, 2 looks at indexes, if it starts.
WITH
source AS MATERIALIZED (
    SELECT * FROM unnest(
        %(instances)s::bigint[], %(attempts)s::int[], %(sources)s::text[], %(targets)s::text[],
        %(effects)s::text[], %(started)s::float8[], %(finished)s::float8[], %(reasons)s::text[],
        %(retries)s::int[], %(delays)s::float8[]
    ) AS source (
        id, attempt, sources, target, effect, started, finished, reason, retries, delay
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
        )
    SELECT
        log.id, '', to_timestamp(log.time), log.event, log.state,
        log.attempt, log.level, log.who, log.message
    FROM unnest(
        %(logged)s::bigint[], %(times)s::float8[], %(events)s::text[], %(states)s::text[],
        %(log_attempts)s::int[], %(levels)s::int[], %(whos)s::text[], %(messages)s::text[]
    ) WITH ORDINALITY AS log (
        id, time, event, state, attempt, level, who, message,
        place
    )
    JOIN moved USING (id)
    ORDER BY log.place
)
SELECT id FROM moved
