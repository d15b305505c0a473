-- Return the limits of these Types; for each limit the number of held Tasks, and how many of them
-- the asking daemon holds; the number of daemons; and the time. Held Tasks are counted only for
-- "max_running", daemon by daemon, since there are few daemons: the index atp_task_held (daemon,
-- type, collection) serves that.
--
-- Cost of a call: 0 rows written, 0 locked. It looks for each limit once at each daemon's Tasks.
SELECT
    own.id, type.identifier, own.collection, own.weight, own.max_running, own.per_second,
    own.burst, own.max_running_per_collection, own.tokens, extract(epoch FROM own.refilled)::float8,
    coalesce(held.number, 0), coalesce(held.own, 0),
    (SELECT count(*) FROM atp_daemon),
    extract(epoch FROM clock_timestamp())::float8
FROM atp_limit own JOIN atp_type type ON type.id = own.type_id
LEFT JOIN LATERAL (
    SELECT count(*) AS number,
        count(*) FILTER (WHERE daemon.uuid = %(daemon)s::uuid) AS own
    FROM atp_daemon daemon CROSS JOIN LATERAL (
        SELECT FROM atp_task
        WHERE own.collection IS NULL AND daemon_id = daemon.id AND type_id = own.type_id
      UNION ALL
        SELECT FROM atp_task
        WHERE daemon_id = daemon.id AND type_id = own.type_id
          AND collection = own.collection
    ) task
    WHERE own.max_running IS NOT NULL
) held ON true
WHERE type.identifier = ANY (%(types)s::text[])
  AND (own.max_running IS NOT NULL OR own.per_second IS NOT NULL
      OR own.max_running_per_collection IS NOT NULL)
ORDER BY own.id
