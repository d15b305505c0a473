-- Enqueue one Instance, like enqueue.sql, but without unnest: the server has little to plan.
--
-- Locks: the Type (KEY SHARE, waits). An identifier that another session is about to take
-- waits for that session.
--
-- Cost of a call: 4 rows written, 1 locked, 1 look at indexes.
--
-- The time is that of the statement, not of the moment: for a volatile function such as
-- clock_timestamp() the server needs a plan node of its own. The answer is one column: each column
-- takes the driver a third of the time that it needs for a short statement.
WITH
type AS MATERIALIZED (
    SELECT id FROM atp_type WHERE identifier = %(type)s::text
        -- Other names of the Type may have the identifier.
        AND (family = '' OR %(identifier)s::text IS NULL)
    -- Nobody can unregister the Type until this commits.
    FOR KEY SHARE
),
made AS (
    INSERT INTO atp_instance (
        own,
        type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, start_before, created_by, created
    )
    SELECT
        %(own)s::jsonb,
        id, %(uuid)s::uuid, %(identifier)s::text, 'ACCEPTED', '', %(collection)s::text,
        %(priority)s::int, 0, 0,
        0, 0, '', to_timestamp(%(start_before)s::float8), %(created_by)s::text, statement_timestamp()
    FROM type
    ON CONFLICT (type_id, identifier) WHERE identifier IS NOT NULL DO NOTHING
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
        waits,
        instance_id, type_id, collection, priority, due_at, start_before, attempt, request
    )
    SELECT
        %(waits)s::int,
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
