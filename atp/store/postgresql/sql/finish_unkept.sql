-- Record that attempts FINISHED whose Instances are not kept: delete the Task, the Instance and
-- all rows that belong to it. This is fenced like finish.sql, takes the same locks, and fails in
-- the same case. An Instance with stored files is neither touched nor returned: it is recorded
-- like any other, since files must be deleted first. For "= ANY (ARRAY[key])" see claim.sql.
--
-- Locks: the Tasks, in the order of their keys (waits); then their Instances (waits), and all
-- rows that belong to them.
--
-- Cost of a Task: 5 rows written, 0 locked, 7 looks at indexes, if its log has two records.
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
inputs AS (
    DELETE FROM atp_inputs inputs USING gone WHERE inputs.instance_id = ANY (ARRAY[gone.id])
),
responses AS (
    DELETE FROM atp_response response USING gone WHERE response.instance_id = ANY (ARRAY[gone.id])
),
steps AS (
    DELETE FROM atp_step step USING gone WHERE step.instance_id = ANY (ARRAY[gone.id])
),
logs AS (
    DELETE FROM atp_logrecord log USING gone WHERE log.instance_id = ANY (ARRAY[gone.id])
)
SELECT
    (SELECT array_agg(id) FROM gone) AS written,
    1 / (CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM deleted) THEN 1 ELSE 0 END)
        AS consistent
