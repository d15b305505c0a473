-- Keep the result of a step that has begun. If this writes no row, the portable store does it.
--
-- Locks: the Task (NO KEY UPDATE), if it is free; then the Step.
--
-- Cost of a call: 1 row written, 1 locked, 2 looks at indexes.
WITH held AS (
    SELECT instance_id FROM atp_task
    WHERE instance_id = %(instance)s::bigint AND attempt = %(attempt)s::int AND daemon_id IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE atp_step
SET attempt = %(attempt)s::int, finished = clock_timestamp(), format = %(format)s::text,
    data = %(data)s::text
FROM held
WHERE atp_step.instance_id = held.instance_id AND name = %(name)s::text
