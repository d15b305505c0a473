-- Let daemons take turns at what is limited: what is counted by a statement after this sees
-- what whoever had the lock before has claimed. Whoever has it is not waited for; tells
-- whether all rows are locked now.
SELECT count(locked.id) = count(own.id)
FROM atp_limit own LEFT JOIN (
    SELECT id FROM atp_limit
    WHERE type_id = (SELECT id FROM atp_type WHERE identifier = %(type)s)
    ORDER BY id
    FOR UPDATE SKIP LOCKED
) locked ON locked.id = own.id
WHERE own.type_id = (SELECT id FROM atp_type WHERE identifier = %(type)s)
