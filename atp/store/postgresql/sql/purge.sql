-- Remove what is over of a Type, the oldest first, with all that belongs to it. What
-- somebody else removes, or redrives, is left to him; what has stored files is left where
-- it is, and told: files go first. An Instance that has ended has no Task.
--
-- Waits for no Instance, but for a lock on what belongs to one: see removal.py. It goes
-- along the index of what has ended, from where the last one came to. For
-- "= ANY (ARRAY[key])" see claim.sql. A node goes with its whole graph.
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
-- include belongings
SELECT
    (SELECT count(*) FROM over) AS found,
    (SELECT extract(epoch FROM max(finished))::float8 FROM over) AS until,
    (SELECT array_agg(id) FROM stored) AS stored
