-- Enqueue: write Instances, Inputs, LogRecords and Tasks in one statement.
--
-- Locks: the Type (KEY SHARE, waits). An identifier that another session is about to take waits
-- for that session.
--
-- Cost of a Task: 4 rows written, 0 locked, 0 looks at indexes. It locks the Type's row once.
--
-- The keys of the Instances are drawn first. So the four tables can be written independently of
-- each other, in the order of the submissions. If the Type is not registered, no key is drawn.
-- An Instance is not inserted if its identifier is taken. Then fewer keys are returned than were
-- asked for, and the caller has to roll back the other rows. For nodes of graphs, "waits" is the
-- number of edges that they wait for.
--
-- If the statement is a transaction of its own ("tell"), it wakes the idle daemons at its commit;
-- otherwise notify.sql does that.
WITH
type AS MATERIALIZED (
    SELECT
        id, pg_get_serial_sequence('atp_instance', 'id')::regclass AS keys,
        clock_timestamp() AS now
    FROM atp_type WHERE identifier = %(type)s::text
        -- Other names of the Type may have the identifier.
        AND (family = '' OR NOT %(named)s)
    -- Nobody can unregister the Type until this commits.
    FOR KEY SHARE
),
source AS MATERIALIZED (
    SELECT
        nextval(type.keys) AS id, type.id AS type_id, type.now, source.*
    FROM type,
        unnest(
            %(uuids)s::uuid[], %(identifiers)s::text[], %(collections)s::text[],
            %(priorities)s::int[], %(dues)s::float8[], %(start_befores)s::float8[],
            %(waits)s::int[],
            %(owns)s::jsonb[],
            %(whos)s::text[], %(formats)s::text[], %(inputs)s::text[]
        ) AS source (
            uuid, identifier, collection, priority, due, start_before,
            waits,
            own,
            who, format, inputs
        )
),
made AS (
    INSERT INTO atp_instance (
        own,
        id, type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, start_before, created_by, created
    )
    SELECT
        own,
        id, type_id, uuid, identifier, 'ACCEPTED', '', collection, priority, 0, 0,
        0, 0, '', to_timestamp(start_before), who, now
    FROM source
    ON CONFLICT (type_id, identifier) WHERE identifier IS NOT NULL DO NOTHING
    RETURNING id
),
given AS (
    INSERT INTO atp_inputs (instance_id, format, data)
    SELECT id, format, inputs FROM source
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT id, '', now, 'enqueue', 'ACCEPTED', 0, 20, coalesce(nullif(who, ''), %(who)s::text), ''
    FROM source
),
queued AS (
    INSERT INTO atp_task (
        waits,
        instance_id, type_id, collection, priority, due_at, start_before, attempt, request
    )
    SELECT
        waits,
        id, type_id, collection, priority, coalesce(to_timestamp(due), now),
        to_timestamp(start_before), 0, ''
    FROM source
)
SELECT
    (SELECT id FROM type), (SELECT extract(epoch FROM now)::float8 FROM type), array_agg(id ORDER BY id),
    CASE WHEN %(tell)s::bool THEN (
        SELECT count(pg_notify('atp_wake', ''))
        WHERE EXISTS (SELECT FROM atp_daemon WHERE idle AND lease_until > clock_timestamp())
    ) END
FROM made
