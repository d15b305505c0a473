-- Settle the ends of nodes: subtract the satisfied edges from the edges that each downstream Task
-- waits for. A Task that waits for no edge any more becomes due, but not before its node's
-- "not_before". This is a statement of its own, executed after the nodes were locked and their
-- ends recorded: it sees every edge that will ever lead from these nodes.
--
-- The Tasks are locked in the order of their keys. If two sessions record ends at once, they count
-- down one after the other: the one that waited for the lock finds the row as the other left it.
-- The statement returns three values: the number of freed Tasks; the ended nodes that have a
-- downstream node which must fail ("doomed"); and the facts about the ended Instances that have
-- hooks, of their own or of their Type. A hook has no hooks itself. The nodes of Instances that
-- ended in the line of a schedule are deleted, with their edges. For "= ANY (ARRAY[key])" see
-- claim.sql.
--
-- Locks: the Tasks that wait for the nodes, in the order of their keys (waits).
--
-- Cost of a Task: 2 rows written, 1 locked, 5 looks at indexes, if one Task waits for its end.
WITH
edge AS MATERIALIZED (
    SELECT ended.id AS upstream, edge.downstream_id AS id,
        ended.is_finished OR edge."on" = 'ended' AS is_satisfied
    FROM unnest(%(instances)s::bigint[], %(finished)s::bool[]) AS ended (id, is_finished)
    JOIN atp_edge edge ON edge.upstream_id = ANY (ARRAY[ended.id])
),
satisfied AS MATERIALIZED (
    SELECT id, count(*) AS number FROM edge WHERE is_satisfied GROUP BY id
),
locked AS MATERIALIZED (
    SELECT satisfied.*, clock.now
    FROM (SELECT clock_timestamp() AS now) clock, satisfied
    JOIN atp_task task ON task.instance_id = ANY (ARRAY[satisfied.id])
    WHERE task.waits > 0
    ORDER BY satisfied.id
    FOR UPDATE OF task
),
counted AS (
    UPDATE atp_task task
    SET waits = greatest(task.waits - number, 0),
        due_at = CASE
            WHEN task.waits <= number THEN greatest(locked.now, (
                SELECT not_before FROM atp_node node
                WHERE node.instance_id = ANY (ARRAY[locked.id])
            ))
            ELSE task.due_at
        END
    FROM locked
    WHERE task.instance_id = ANY (ARRAY[locked.id]) AND task.waits > 0
    RETURNING task.instance_id AS id, task.waits, task.attempt, locked.now
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT id, '', now, 'freed', 'ACCEPTED', attempt, 20, %(who)s::text, %(message)s::text
    FROM counted WHERE waits = 0
    ORDER BY id
),
-- Few Instances have hooks. The Types of these Instances alone are looked up.
hooked AS MATERIALIZED (
    SELECT instance.*
    FROM unnest(%(instances)s::bigint[]) AS ended (id)
    JOIN atp_instance instance ON instance.id = ANY (ARRAY[ended.id])
    WHERE (jsonb_exists(own, 'hooks') OR type_id = ANY (ARRAY(
            SELECT id FROM atp_type WHERE hooks IS NOT NULL
        )))
      AND jsonb_exists(own, 'hook_of') IS NOT TRUE
),
gone AS (
    DELETE FROM atp_node node
    USING unnest(%(instances)s::bigint[]) AS ended (id)
    WHERE node.instance_id = ANY (ARRAY[ended.id]) AND node.graph_id IS NULL
    RETURNING ended.id
),
behind AS (DELETE FROM atp_edge USING gone WHERE upstream_id = ANY (ARRAY[gone.id])),
before AS (DELETE FROM atp_edge USING gone WHERE downstream_id = ANY (ARRAY[gone.id]))
SELECT
    (SELECT count(*) FROM counted WHERE waits = 0) AS freed,
    (SELECT array_agg(DISTINCT upstream) FROM edge WHERE NOT is_satisfied) AS doomed,
    (
        SELECT json_agg(json_build_array(
            instance.id, instance.uuid, type.identifier, instance.state, instance.reason,
            instance.attempt, type.hooks, instance.own, instance.identifier, instance.collection
        ) ORDER BY instance.id)::text
        FROM hooked instance JOIN atp_type type ON type.id = ANY (ARRAY[instance.type_id])
    ) AS hooked
