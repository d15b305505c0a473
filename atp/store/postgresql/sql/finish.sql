-- Record that attempts FINISHED, fenced by holder and attempt: what most batches
-- are made of, in fewer steps than record.sql takes.
--
-- Where "started" is given, the start of the attempt is recorded with it. The
-- Task says who holds it, so that it is removed first; its Instance then is in
-- the state that a held Task goes with, or the whole statement fails, by a
-- division by zero. The answer are those that were refused.
WITH
source AS MATERIALIZED (
    SELECT * FROM unnest(
        %(instances)s::bigint[], %(attempts)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(whos)s::text[]
    ) AS source (id, attempt, started, finished, who)
),
deleted AS (
    DELETE FROM atp_task task USING source
    WHERE task.instance_id = source.id AND task.attempt = source.attempt
      AND task.daemon_id = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
    RETURNING source.*
),
moved AS (
    UPDATE atp_instance instance
    SET state = 'FINISHED', progress = 1,
        started = coalesce(to_timestamp(deleted.started), instance.started),
        finished = to_timestamp(deleted.finished),
        progress_message = CASE
            WHEN deleted.started IS NULL THEN instance.progress_message ELSE ''
        END
    FROM deleted
    WHERE instance.id = deleted.id
      AND instance.state = CASE WHEN deleted.started IS NULL THEN 'RUNNING' ELSE 'SCHEDULED' END
    RETURNING deleted.*
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
        (instance_id, subject, time, event, state, attempt, level, who, message)
    SELECT moved.id, '', to_timestamp(log.time), log.event, log.state, attempt, 20, who, ''
    FROM moved CROSS JOIN LATERAL (
        VALUES ('start', 'RUNNING', started), ('finish', 'FINISHED', finished)
    ) AS log (event, state, time)
    WHERE log.time IS NOT NULL
)
SELECT source.id, 1 / (CASE WHEN deleted.id IS NULL THEN 1 ELSE 0 END)
FROM source
LEFT JOIN moved ON moved.id = source.id
LEFT JOIN deleted ON deleted.id = source.id
WHERE moved.id IS NULL
