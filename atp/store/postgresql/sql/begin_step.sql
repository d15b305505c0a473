-- Write that the attempt which holds a Task begins a step that has no row yet: most steps.
-- The portable store does the rest: a step that has a row, a step that may not be written, and a
-- Task that somebody has locked.
--
-- Locks: the Task (NO KEY UPDATE), if it is free.
--
-- Cost of a call: 1 row written, 1 locked, 2 looks at indexes.
WITH held AS (
    SELECT instance_id FROM atp_task
    WHERE instance_id = %(instance)s::bigint AND attempt = %(attempt)s::int AND daemon_id IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
INSERT INTO atp_step (instance_id, name, attempt, started, until, format)
SELECT instance_id, %(name)s::text, %(attempt)s::int, now(), now() + %(delay)s::interval, 'json'
FROM held
WHERE (SELECT count(*) FROM atp_step WHERE instance_id = %(instance)s::bigint) < %(most)s::bigint
ON CONFLICT (instance_id, name) DO NOTHING
