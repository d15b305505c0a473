-- Walk: find due Tasks, lane by lane. Part of claim.sql.
--
-- "level" walks the index atp_task_claim (LANES_ORDER of atp/querysets.py; waiting Tasks
-- only) from lane to lane and from priority to priority. A step is one look at the index: at the
-- first row of the next lane, or of the next lower priority. So the walk need not pass through
-- Tasks that are due in the future, or through the Tasks of a held lane, however many there are.
-- All Types step together. Each Type begins behind the lane where the last claim ended ("after")
-- and comes round to it, until it has found "enough", or has taken the most steps ("most").
--
-- The shortcut: the server must keep deleted rows while another session might still see them.
-- They lie in front of the due Tasks, and each look has to step over them. With the shortcut, the
-- walk goes to known lanes, and "floors" and "dues" say at which priority and due time the last
-- claim from each lane ended. Tasks of that priority with an earlier due time are left for a later
-- look. "gaps" says whether the walk also looks for other lanes between the known ones. Lines that
-- are "only with ends" serve this shortcut alone: the walk can be read without them.
level (
    type_id, turn, number, way, bound, collection, priority, due_at,
    floor, due, -- only with ends
    steps, is_ready, ready
) AS (
    -- Ways: "all" begins behind the last lane and comes round to it, "bound"; "one" walks a known
    -- lane; "gap" goes from a known lane to the next one, "bound", or to the end if there is none.
    -- "all" and "gap" begin without a priority, "one" above all priorities. "ready" is the number
    -- of finds before this step.
    (
        SELECT id AS type_id, turn, 0::bigint AS number, 'all' AS way, after AS bound,
            after AS collection, NULL::int AS priority, NULL::timestamptz AS due_at,
            NULL::int AS floor, NULL::timestamptz AS due, -- only with ends
            0 AS steps, false AS is_ready, 0 AS ready
        FROM served WHERE %(walks)s
      UNION ALL
        SELECT type_id, turn, number, 'one', NULL, collection, 1000, NULL,
            floor, due, -- only with ends
            0, false, 0
        FROM known
        WHERE NOT %(walks)s
      UNION ALL -- only with ends
        SELECT type_id, turn, number, 'gap', next, collection, NULL, NULL, NULL, NULL, -- only with ends
            0, false, 0 -- only with ends
        FROM known -- only with ends
        WHERE %(gaps)s -- only with ends
    )
  UNION ALL
    SELECT type_id, turn, number, way, bound, step.collection, step.priority, step.due_at,
        floor, due, -- only with ends
        steps + 1, step.is_ready, ready + level.is_ready::int
    FROM level CROSS JOIN LATERAL (
        SELECT *, due_at <= (SELECT now FROM daemon)
            AND (level.type_id, collection) NOT IN (
                SELECT type_id, collection FROM closed
                WHERE collection IS NOT NULL AND NOT is_limit
            )
            AND ((level.type_id, collection) NOT IN (
                SELECT type_id, collection FROM closed WHERE collection IS NOT NULL AND is_limit
            ) OR %(limited)s AND (level.type_id, collection) IN (
                SELECT type_id, collection FROM known
            )) AS is_ready
        FROM (
        -- The next lower priority: first above the one where the last claim ended, then there, then
        -- below.
        ( -- only with ends
            SELECT collection::text, priority::int, due_at FROM atp_task -- only with ends
            WHERE type_id = level.type_id AND daemon_id IS NULL -- only with ends
              AND collection = level.collection -- only with ends
              AND priority < level.priority AND priority > level.floor -- only with ends
            ORDER BY atp_task.priority DESC, due_at LIMIT 1 -- only with ends
        ) -- only with ends
      UNION ALL -- only with ends
        ( -- only with ends
            SELECT collection::text, priority::int, due_at FROM atp_task -- only with ends
            WHERE level.priority > level.floor -- only with ends
              AND type_id = level.type_id AND daemon_id IS NULL -- only with ends
              AND collection = level.collection -- only with ends
              AND priority = level.floor AND due_at >= level.due -- only with ends
            ORDER BY due_at LIMIT 1 -- only with ends
        ) -- only with ends
      UNION ALL -- only with ends
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE type_id = level.type_id AND daemon_id IS NULL
              AND collection = level.collection
              AND priority < least(level.priority
                  , level.floor -- only with ends
              )
            ORDER BY atp_task.priority DESC, due_at LIMIT 1
        )
        -- The next lane.
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE CASE level.way
                WHEN 'all' THEN level.priority IS NULL OR level.collection > level.bound
                WHEN 'gap' THEN level.bound IS NULL -- only with ends
              END
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection > level.collection
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.way = 'all' AND (level.priority IS NULL OR level.collection > level.bound)
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection <= level.bound
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL
        (
            SELECT collection::text, priority::int, due_at FROM atp_task
            WHERE level.way = 'all' AND level.collection <= level.bound
              AND type_id = level.type_id AND daemon_id IS NULL
              AND collection > level.collection AND collection <= level.bound
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1
        )
      UNION ALL -- only with ends
        ( -- only with ends
            SELECT collection::text, priority::int, due_at FROM atp_task -- only with ends
            WHERE level.way = 'gap' -- only with ends
              AND type_id = level.type_id AND daemon_id IS NULL -- only with ends
              AND collection > level.collection AND collection < level.bound -- only with ends
            ORDER BY atp_task.collection, atp_task.priority DESC, due_at LIMIT 1 -- only with ends
        ) -- only with ends
        LIMIT 1
        ) first
    ) step
    WHERE steps < %(most)s::int AND ready + level.is_ready::int < %(enough)s::int
),
