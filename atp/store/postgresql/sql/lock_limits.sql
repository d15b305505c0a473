-- Let daemons take turns at what is limited: what is counted by a statement after this sees
-- what whoever had the lock before has claimed.
SELECT FROM atp_limit
WHERE type_id IN (SELECT id FROM atp_type WHERE identifier = ANY (%(types)s::text[]))
ORDER BY id
FOR UPDATE
