-- Enqueue like enqueue.sql Instances without identifiers, options of their own, and edges.
--
-- Locks: the Type (KEY SHARE, waits).
--
-- Cost of a Task: 4 rows written, 0 locked, 0 looks at indexes. It locks the Type's row once.
WITH
type AS MATERIALIZED (
    SELECT
        id, pg_get_serial_sequence('atp_instance', 'id')::regclass AS keys,
        clock_timestamp() AS now
    FROM atp_type WHERE identifier = %(type)s::text
    -- Nobody can unregister the Type until this commits.
    FOR KEY SHARE
),
source AS MATERIALIZED (
    SELECT
        nextval(type.keys) AS id, type.id AS type_id, type.now, source.*
    FROM type,
        unnest(
            %(uuids)s::uuid[], %(collections)s::text[],
            %(priorities)s::int[], %(dues)s::float8[], %(start_befores)s::float8[],
            %(whos)s::text[], %(formats)s::text[], %(inputs)s::text[]
        ) AS source (
            uuid, collection, priority, due, start_before,
            who, format, inputs
        )
),
made AS (
    INSERT INTO atp_instance (
        id, type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, start_before, created_by, created
    )
    SELECT
        id, type_id, uuid, NULL, 'ACCEPTED', '', collection, priority, 0, 0,
        0, 0, '', to_timestamp(start_before), who, now
    FROM source
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
        instance_id, type_id, collection, priority, due_at, start_before, attempt, request
    )
    SELECT
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
