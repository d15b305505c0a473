-- Lock the limits of a Type, so that daemons take turns at its limited Tasks: a later statement
-- that counts held Tasks sees the claims of the session that had the lock before. This does not
-- wait for a lock of another session; it returns whether all rows are locked now.
--
-- Locks: the limits of the Type, in the order of their keys, those that are free.
--
-- Cost of a call: 0 rows written, 1 locked, 4 looks at indexes, if the Type alone has a limit.
SELECT count(locked.id) = count(own.id)
FROM atp_limit own LEFT JOIN (
    SELECT id FROM atp_limit
    WHERE type_id = (SELECT id FROM atp_type WHERE identifier = %(type)s)
    ORDER BY id
    FOR UPDATE SKIP LOCKED
) locked ON locked.id = own.id
WHERE own.type_id = (SELECT id FROM atp_type WHERE identifier = %(type)s)
