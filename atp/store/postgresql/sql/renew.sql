-- Extend a daemon's lease. If this returns no row, the daemon's row is gone.
--
-- Locks: the row of the daemon (waits).
--
-- Cost of a call: 1 row written, 0 locked, 1 look at indexes.
UPDATE atp_daemon
SET lease_until = now + %(lease)s::float8 * interval '1 second',
    seen = now, workers = %(workers)s::jsonb, misfits = %(misfits)s::jsonb, idle = %(idle)s::bool,
    engine = %(engine)s::jsonb, channel = %(channel)s::text, mode = %(mode)s::text
FROM (SELECT clock_timestamp() AS now) clock
WHERE uuid = %(daemon)s::uuid
RETURNING extract(epoch FROM seen)::float8, request
