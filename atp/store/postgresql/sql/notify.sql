-- Wake the daemons that listen. A NOTIFY takes a lock that all notifying sessions of the server
-- share; so this notifies only if a live daemon has said that it is idle.
--
-- Cost of a call: 0 rows written, 0 locked, 0 looks at indexes.
SELECT pg_notify('atp_wake', '')
WHERE EXISTS (SELECT FROM atp_daemon WHERE idle AND lease_until > clock_timestamp())
