-- What the limits of these Types are, what is held of each, and the time. By daemon, of
-- which there are few, what is held stands in atp_task_held (daemon, type, collection).
SELECT
    own.id, type.identifier, own.collection, own.weight, own.max_running, own.per_second,
    own.burst, own.tokens, extract(epoch FROM own.refilled)::float8,
    CASE
        WHEN own.max_running IS NULL THEN 0
        WHEN own.collection IS NULL THEN (
            SELECT count(*) FROM atp_daemon daemon CROSS JOIN LATERAL (
                SELECT FROM atp_task
                WHERE daemon_id = daemon.id AND type_id = own.type_id
            ) held
        )
        ELSE (
            SELECT count(*) FROM atp_daemon daemon CROSS JOIN LATERAL (
                SELECT FROM atp_task
                WHERE daemon_id = daemon.id AND type_id = own.type_id
                  AND collection = own.collection
            ) held
        )
    END,
    extract(epoch FROM clock_timestamp())::float8
FROM atp_limit own JOIN atp_type type ON type.id = own.type_id
WHERE type.identifier = ANY (%(types)s::text[])
  AND (own.max_running IS NOT NULL OR own.per_second IS NOT NULL)
ORDER BY own.id
