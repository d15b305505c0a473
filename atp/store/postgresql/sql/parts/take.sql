-- Take: lock the Tasks of the shares, then other Tasks until the limit is reached, in
-- CLAIMING_ORDER of atp/querysets.py. Part of claim.sql. First each lane gives its share
-- ("shared"). If a lane has too few Tasks for its share, other lanes of its Type make up for it
-- ("own"). Lanes of any Type give the Tasks that are still missing ("further"). "candidates" are
-- the Tasks of a lane, at one priority, that may be taken.
shared AS MATERIALIZED (
    SELECT found.*
    FROM (SELECT * FROM lane WHERE share > 0 ORDER BY place) lane CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            -- include candidates
            ORDER BY due_at, instance_id
            LIMIT lane.share
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT lane.share
    ) found
    LIMIT %(limit)s::int
),
-- A lane that gave all of its share may have more Tasks. Lanes with a cap give no more.
lacking AS MATERIALIZED (
    SELECT %(limit)s::int - count(*) AS number FROM shared
),
more AS MATERIALIZED (
    SELECT * FROM lane
    WHERE cap IS NULL AND (SELECT number FROM lacking) > 0 AND (share = 0 OR (place, share) IN (
        SELECT place, count(*) FROM shared GROUP BY place
    ))
    ORDER BY place
),
own AS MATERIALIZED (
    SELECT found.*
    FROM (
        SELECT type_id, least(sum(share) - (
            SELECT count(*) FROM shared WHERE type_id = lane.type_id
        ), (SELECT number FROM lacking)) AS number
        FROM lane
        WHERE (SELECT number FROM lacking) > 0
        GROUP BY type_id
    ) lacks CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM (SELECT * FROM more WHERE type_id = lacks.type_id ORDER BY place) lane
        CROSS JOIN LATERAL unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            -- include candidates
              AND instance_id NOT IN (SELECT instance_id FROM shared)
            ORDER BY due_at, instance_id
            LIMIT lacks.number
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT lacks.number
    ) found
    WHERE lacks.number > 0
    LIMIT (SELECT number FROM lacking)
),
left_over AS MATERIALIZED (
    SELECT lacking.number - (SELECT count(*) FROM own) AS number FROM lacking
),
further AS MATERIALIZED (
    SELECT found.*
    FROM more AS lane CROSS JOIN LATERAL (
        SELECT task.row, task.instance_id, lane.type_id, lane.place
        FROM unnest(lane.priorities, lane.dues) AS level (priority, due)
        CROSS JOIN LATERAL (
            -- include candidates
              AND instance_id NOT IN (SELECT instance_id FROM shared)
              AND instance_id NOT IN (SELECT instance_id FROM own)
            ORDER BY due_at, instance_id
            LIMIT (SELECT number FROM left_over)
            FOR UPDATE SKIP LOCKED
        ) task
        LIMIT (SELECT number FROM left_over)
    ) found
    WHERE (SELECT number FROM left_over) > 0
    LIMIT (SELECT number FROM left_over)
),
