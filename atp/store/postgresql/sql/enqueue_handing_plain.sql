-- Enqueue and hand over like enqueue_handing.sql an Instance without an identifier and without
-- options of its own.
--
-- Locks: the Type (KEY SHARE, waits); then the row of the daemon, if it is free.
--
-- Cost of a call: 6 rows written, 2 locked, 5 looks at indexes, if a daemon takes the Task.
WITH
type AS MATERIALIZED (
    SELECT id, resources, clock_timestamp() AS now FROM atp_type
    WHERE identifier = %(type)s::text
    -- Nobody can unregister the Type until this commits.
    FOR KEY SHARE
),
taker AS MATERIALIZED (
    SELECT daemon.id, daemon.uuid, daemon.channel, daemon.host || ':' || daemon.pid AS name
    FROM type, atp_daemon daemon
    WHERE type.resources IS NULL
      AND daemon.idle AND daemon.channel <> '' AND daemon.lease_until > type.now
      AND daemon.mode = 'running' AND daemon.request = ''
      AND jsonb_exists(daemon.types, %(type)s::text)
      AND current_setting('transaction_isolation') = 'read committed'
      AND NOT EXISTS (
          SELECT FROM atp_gate WHERE type_id IS NULL OR type_id = type.id
        UNION ALL
          SELECT FROM atp_limit
          WHERE type_id = type.id AND (max_running IS NOT NULL OR per_second IS NOT NULL
              OR max_running_per_collection IS NOT NULL)
        UNION ALL
          SELECT FROM atp_downstream JOIN atp_type ON atp_type.downstream = atp_downstream.name
          WHERE atp_type.id = type.id AND atp_downstream.state <> 'closed'
      )
      AND NOT EXISTS (
          SELECT FROM atp_task
          WHERE type_id = type.id AND collection = %(collection)s::text AND daemon_id IS NULL
      )
      AND NOT pg_try_advisory_xact_lock_shared(
          nullif(split_part(daemon.channel, '_', 2), '')::bigint
      )
    LIMIT 1
    FOR NO KEY UPDATE OF daemon SKIP LOCKED
),
made AS (
    INSERT INTO atp_instance (
        type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, created_by, created
    )
    SELECT
        type.id, %(uuid)s::uuid, NULL,
        CASE WHEN taker.id IS NULL THEN 'ACCEPTED' ELSE 'SCHEDULED' END, '',
        %(collection)s::text, %(priority)s::int, (taker.id IS NOT NULL)::int, 0,
        0, 0, '', %(created_by)s::text, type.now
    FROM type LEFT JOIN taker ON true
    RETURNING id, type_id, attempt, created
),
taken AS (
    UPDATE atp_daemon SET idle = false
    WHERE id = (
        SELECT taker.id FROM taker, made
    )
),
given AS (
    INSERT INTO atp_inputs (instance_id, format, data)
    SELECT id, %(format)s::text, %(inputs)s::text FROM made
),
logged AS (
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT made.id, '', made.created, moved.event, moved.state, moved.attempt, 20, moved.who, ''
    FROM made CROSS JOIN LATERAL (
        SELECT 'enqueue', 'ACCEPTED', 0, %(who)s::text
      UNION ALL
        SELECT 'claim', 'SCHEDULED', 1, name FROM taker
    ) moved (event, state, attempt, who)
),
queued AS (
    INSERT INTO atp_task (
        instance_id, type_id, collection, priority, due_at, daemon_id, attempt, request
    )
    SELECT
        made.id, made.type_id, %(collection)s::text, %(priority)s::int, made.created,
        taker.id, made.attempt, ''
    FROM made LEFT JOIN taker ON true
)
SELECT
    made.id::text || ' ' || made.type_id::text || ' ' || date_part('epoch', made.created)::text
    || CASE
        WHEN taker.id IS NOT NULL THEN (
            SELECT pg_notify(taker.channel, json_build_array(
                taker.uuid, extract(epoch FROM made.created), made.id, %(uuid)s::uuid, 1,
                %(format)s::text, %(inputs)s::text, NULL, %(collection)s::text,
                %(priority)s::int, 0, 0, 0, NULL, json_build_array(
                    identifier, extract(epoch FROM timeout), max_retries,
                    extract(epoch FROM backoff), extract(epoch FROM backoff_max), max_restarts,
                    max_memory, 1
                )::text
            )::text)::text
            FROM atp_type WHERE id = made.type_id
        )
        WHEN EXISTS (SELECT FROM atp_daemon WHERE idle AND lease_until > clock_timestamp())
        THEN pg_notify('atp_wake', '')::text
        ELSE ''
    END
FROM made LEFT JOIN taker ON true
