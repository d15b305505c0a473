-- Enqueue like enqueue_one.sql an Instance without an identifier, options of its own, and edges.
--
-- Locks: the Type (KEY SHARE, waits).
--
-- Cost of a call: 4 rows written, 1 locked, 1 look at indexes.
WITH
type AS MATERIALIZED (
    SELECT id FROM atp_type WHERE identifier = %(type)s::text
    -- Nobody can unregister the Type until this commits.
    FOR KEY SHARE
),
made AS (
    INSERT INTO atp_instance (
        type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, start_before, created_by, created
    )
    SELECT
        id, %(uuid)s::uuid, NULL, 'ACCEPTED', '', %(collection)s::text,
        %(priority)s::int, 0, 0,
        0, 0, '', to_timestamp(%(start_before)s::float8), %(created_by)s::text, statement_timestamp()
    FROM type
    RETURNING id, type_id, created
),
given AS (
    INSERT INTO atp_inputs (instance_id, format, data)
    SELECT id, %(format)s::text, %(inputs)s::text FROM made
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT id, '', created, 'enqueue', 'ACCEPTED', 0, 20, %(who)s::text, '' FROM made
),
queued AS (
    INSERT INTO atp_task (
        instance_id, type_id, collection, priority, due_at, start_before, attempt, request
    )
    SELECT
        id, type_id, %(collection)s::text, %(priority)s::int,
        coalesce(to_timestamp(%(due)s::float8), created),
        to_timestamp(%(start_before)s::float8), 0, ''
    FROM made
)
SELECT
    id::text || ' ' || type_id::text || ' ' || date_part('epoch', created)::text || CASE
        WHEN %(tell)s::bool
            AND EXISTS (SELECT FROM atp_daemon WHERE idle AND lease_until > clock_timestamp())
        THEN pg_notify('atp_wake', '')::text
        ELSE ''
    END
FROM made
