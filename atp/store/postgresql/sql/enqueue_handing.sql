-- Enqueue one Instance, and hand it over to an idle daemon: this does the work of enqueue_one.sql
-- and claim_first.sql in one statement and one commit, for an Instance that is due.
--
-- The Task is handed over only if the daemon would claim it first itself: no Task waits in its
-- lane, its Type has no gates and no limits and takes no resources, and the breaker of its
-- downstream, if it has one, is closed. The daemon must say that it is idle, must run and have no new order, and must serve the
-- Type. Its session must listen now: nobody hears a notice to a session that has ended. As long as
-- a session lives, it holds the advisory lock that its channel names, and nobody else can get that
-- lock. The daemon's row is locked, so that nobody renews or ends the daemon meanwhile. A daemon
-- whose row somebody else has locked is passed over. From here on the daemon is not idle until it
-- says so again: it is handed one Task at a time.
--
-- The notice on the daemon's channel contains all that the daemon has to know. Without such a
-- daemon, this statement does the same as enqueue_one.sql. In a transaction that is not READ
-- COMMITTED, it could fail at the row of a daemon that has changed since the transaction began;
-- so it hands nothing over there.
--
-- Locks: the Type (KEY SHARE, waits); then the row of the daemon, if it is free. An
-- identifier that another session is about to take waits for that session.
--
-- Cost of a call: 6 rows written, 2 locked, 5 looks at indexes, if a daemon takes the Task.
WITH
type AS MATERIALIZED (
    SELECT id, resources, clock_timestamp() AS now FROM atp_type
    WHERE identifier = %(type)s::text
        -- Other names of the Type may have the identifier.
        AND (family = '' OR %(identifier)s::text IS NULL)
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
        own,
        type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, created_by, created
    )
    SELECT
        %(own)s::jsonb,
        type.id, %(uuid)s::uuid, %(identifier)s::text,
        CASE WHEN taker.id IS NULL THEN 'ACCEPTED' ELSE 'SCHEDULED' END, '',
        %(collection)s::text, %(priority)s::int, (taker.id IS NOT NULL)::int, 0,
        0, 0, '', %(created_by)s::text, type.now
    FROM type LEFT JOIN taker ON true
    ON CONFLICT (type_id, identifier) WHERE identifier IS NOT NULL DO NOTHING
    RETURNING id, type_id, attempt, created
),
taken AS (
    UPDATE atp_daemon SET idle = false
    WHERE id = (
        -- No row is made if the identifier is taken.
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
                %(format)s::text, %(inputs)s::text, %(identifier)s::text, %(collection)s::text,
                %(priority)s::int, 0, 0, 0, %(own)s::text, json_build_array(
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
