-- Wake whoever listens; costs the server one lock for all that notify, so it is
-- done only where a live daemon has said that it has nothing to do.
SELECT pg_notify('atp_wake', '')
WHERE EXISTS (SELECT FROM atp_daemon WHERE idle AND lease_until > clock_timestamp())
