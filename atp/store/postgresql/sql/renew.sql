-- Extend a daemon's lease. No answer: its row is gone.
UPDATE atp_daemon
SET lease_until = clock_timestamp() + %(lease)s::float8 * interval '1 second',
    seen = clock_timestamp(), workers = %(workers)s::jsonb, idle = %(idle)s::bool
WHERE uuid = %(daemon)s::uuid
RETURNING extract(epoch FROM seen)::float8, request
