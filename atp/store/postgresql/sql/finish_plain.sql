-- Record like finish.sql that attempts FINISHED, if none has a Response.
--
-- Locks: the Tasks, in the order of their keys (waits); then their Instances (waits).
--
-- Cost of a Task: 4 rows written, 0 locked, 2 looks at indexes, if its start is recorded too.
WITH
deleted AS (
    DELETE FROM atp_task task
    USING unnest(
        %(instances)s::bigint[], %(attempts)s::int[], %(began)s::bigint[], %(ended)s::bigint[],
        %(whos)s::text[]
    ) AS source (
        id, number, began, ended,
        who
    )
    WHERE task.instance_id = ANY (ARRAY[source.id])
      AND task.attempt = ANY (ARRAY[source.number])
      -- Find the Task by its key alone: atp_task_held still has many entries of Tasks that the
      -- daemon no longer holds. The coalesce() keeps the planner from that index.
      AND coalesce(task.daemon_id, 0) = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
      AND CASE %(ends)s
          WHEN 'plain' THEN task.waits IS NULL WHEN 'hooked' THEN task.waits < 0 ELSE true
      END
    RETURNING source.*, task.type_id
),
moved AS (
    UPDATE atp_instance instance
    SET state = 'FINISHED', progress = 1,
        started = coalesce(to_timestamp(began::float8 / 1000000), instance.started),
        finished = to_timestamp(ended::float8 / 1000000),
        progress_message = CASE WHEN began IS NULL THEN instance.progress_message ELSE '' END
    FROM deleted
    WHERE instance.id = ANY (ARRAY[deleted.id])
      AND instance.type_id = ANY (ARRAY[deleted.type_id, deleted.type_id])
      AND instance.state = CASE WHEN began IS NULL THEN 'RUNNING' ELSE 'SCHEDULED' END
    RETURNING deleted.*
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT
        moved.id, '', to_timestamp(log.time::float8 / 1000000), log.event, log.state, number, 20,
        who, ''
    FROM moved CROSS JOIN LATERAL (
        VALUES ('start', 'RUNNING', began), ('finish', 'FINISHED', ended)
    ) AS log (event, state, time)
    WHERE log.time IS NOT NULL
),
counted AS (
    SELECT
        (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM moved) AS moved
)
SELECT
    CASE WHEN moved < %(given)s THEN (SELECT array_agg(id) FROM moved) END AS written,
    moved = %(given)s AS is_all,
    1 / (CASE WHEN moved = deleted THEN 1 ELSE 0 END) AS consistent
FROM counted
