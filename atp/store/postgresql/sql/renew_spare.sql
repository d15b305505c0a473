-- Extend a daemon's lease in its spare lease, while somebody else has locked the daemon's row.
-- If this returns no row, the daemon's row is gone.
--
-- Locks: the spare lease (waits).
--
-- Cost of a call: 1 row written, 0 locked, 2 looks at indexes.
UPDATE atp_sparelease spare
SET until = now + %(lease)s::float8 * interval '1 second'
FROM (SELECT clock_timestamp() AS now) clock, atp_daemon daemon
WHERE daemon.uuid = %(daemon)s::uuid AND spare.daemon_id = daemon.id
RETURNING extract(epoch FROM now)::float8, daemon.request
