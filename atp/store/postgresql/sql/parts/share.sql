-- Share: give each Type a share of the limit by its weight, and each lane of the Type an even part
-- of that share. Part of claim.sql. "cap" is the room that a lane has under its own limit. This
-- relies on LANES_ORDER of atp/querysets.py: priority first, then due time. If there are more
-- "finds" than the limit, others have locked some of them: then each lane may give a Task, in turn.
found AS MATERIALIZED (
    -- The first find of the walk in each Type, then the second one of each, …
    SELECT type_id, turn, collection, priority,
        CASE WHEN %(limited)s THEN (
            SELECT cap FROM known
            WHERE known.type_id = level.type_id AND known.collection = level.collection
        ) END AS cap,
        CASE WHEN priority = floor THEN due ELSE -- only with ends
        '-infinity'::timestamptz
        END -- only with ends
        AS due,
        row_number() OVER (ORDER BY ready, turn, number) AS place
    FROM level
    WHERE is_ready
    ORDER BY ready, turn, number
    LIMIT %(finds)s::int
),
ready AS MATERIALIZED (
    SELECT type_id, turn, collection, cap, min(place) AS place,
        array_agg(priority ORDER BY place) AS priorities, array_agg(due ORDER BY place) AS dues
    FROM found GROUP BY type_id, turn, collection, cap
),
weighed AS MATERIALIZED (
    SELECT *, sum(weight) OVER (ORDER BY turn) / sum(weight) OVER () AS until,
        weight / sum(weight) OVER () AS part
    FROM (
        SELECT type_id, turn, coalesce((
            SELECT weight FROM atp_limit WHERE type_id = ready.type_id AND collection IS NULL
        ), 1) AS weight
        FROM ready GROUP BY type_id, turn
    ) types
),
entitled AS MATERIALIZED (
    SELECT type_id,
        ceil(%(limit)s::int * until - 1e-6) - ceil(%(limit)s::int * (until - part) - 1e-6)
            AS share,
        date_part('epoch', clock_timestamp() - (SELECT now FROM daemon)) AS looked,
        (
            SELECT json_build_array(
                identifier, extract(epoch FROM timeout), max_retries, extract(epoch FROM backoff),
                extract(epoch FROM backoff_max), max_restarts, max_memory, weight
            )::text
            FROM atp_type WHERE id = type_id
        ) AS parameters
    FROM weighed
),
lane AS MATERIALIZED (
    SELECT ready.type_id, collection, place, cap, priorities, dues,
        least(cap, greatest((
            ceil(share * row_number() OVER own / count(*) OVER lanes - 1e-6)
            - ceil(share * (row_number() OVER own - 1) / count(*) OVER lanes - 1e-6)
        )::int, (%(finds)s::int > %(limit)s::int)::int)) AS share
    FROM ready JOIN entitled ON entitled.type_id = ready.type_id
    WINDOW own AS (PARTITION BY ready.type_id ORDER BY place),
        lanes AS (PARTITION BY ready.type_id)
    ORDER BY place
),
