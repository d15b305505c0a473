-- Remove ended Instances of a Type, the oldest first, with all rows that belong to them. An
-- Instance that somebody else is removing or redriving is left to that session. An Instance with
-- stored files is not removed but returned, as its files must be deleted first. An ended Instance
-- has no Task.
--
-- This waits for no lock on an Instance, but it does wait for locks on the rows that belong to
-- one: see removal.py. It walks along the index of ended Instances, from the end time that the
-- last purge came to ("since"). For "= ANY (ARRAY[key])" see claim.sql. A node of a graph is left
-- alone: it is removed with its whole graph.
--
-- Locks: the Instances, those that are free; then all rows that belong to them (waits).
--
-- Cost of a Instance: 6 rows written, 1 locked, 7 looks at indexes, if its log has four records.
WITH
over AS MATERIALIZED (
    SELECT id, finished
    FROM atp_instance
    WHERE type_id = %(type)s
      AND finished IS NOT NULL
      AND finished >= to_timestamp(%(since)s::float8)
      AND finished < to_timestamp(%(before)s::float8)
      AND (%(reasons)s::text = '' OR (reason = '') = (%(reasons)s::text = 'none'))
      AND (
          SELECT node.instance_id FROM atp_node node
          WHERE node.instance_id = ANY (ARRAY[atp_instance.id])
      ) IS NULL
    ORDER BY finished
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
stored AS MATERIALIZED (
    SELECT over.id
    FROM over JOIN atp_response response ON response.instance_id = ANY (ARRAY[over.id])
    WHERE response.file > '' OR response.files <> '[]'
),
gone AS (
    DELETE FROM atp_instance instance
    USING over
    WHERE instance.id = ANY (ARRAY[over.id]) AND NOT over.id IN (SELECT id FROM stored)
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
    (SELECT count(*) FROM over) AS found,
    (SELECT extract(epoch FROM max(finished))::float8 FROM over) AS until,
    (SELECT array_agg(id) FROM stored) AS stored
