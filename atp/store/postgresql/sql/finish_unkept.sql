-- Record that attempts FINISHED whose Instances are not kept: delete the Task, the Instance and
-- all rows that belong to it. This is fenced like finish.sql, takes the same locks, and fails in
-- the same case. An Instance with stored files is neither touched nor returned: it is recorded
-- like any other, since files must be deleted first. For "= ANY (ARRAY[key])" see claim.sql.
WITH
deleted AS (
    DELETE FROM atp_task task
    USING unnest(%(instances)s::bigint[], %(attempts)s::int[], %(began)s::bigint[])
        AS source (id, number, began)
    WHERE task.instance_id = ANY (ARRAY[source.id])
      AND task.attempt = ANY (ARRAY[source.number])
      AND coalesce(task.daemon_id, 0) = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s::uuid)
      AND task.waits IS NULL
      AND NOT EXISTS (
          SELECT FROM atp_response response
          WHERE response.instance_id = ANY (ARRAY[source.id])
            AND (response.file > '' OR response.files <> '[]')
      )
    RETURNING source.id, source.began
),
gone AS (
    DELETE FROM atp_instance instance
    USING deleted
    WHERE instance.id = ANY (ARRAY[deleted.id])
      AND instance.state = CASE WHEN began IS NULL THEN 'RUNNING' ELSE 'SCHEDULED' END
    RETURNING instance.id
),
-- include belongings
SELECT
    (SELECT array_agg(id) FROM gone) AS written,
    1 / (CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM deleted) THEN 1 ELSE 0 END)
        AS consistent
