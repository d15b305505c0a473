-- Select the Tasks of a lane, at one priority, that may be taken. Part of take.sql.
-- This relies on LANES_ORDER of atp/querysets.py: priority first, then due time.
            SELECT ctid AS row, instance_id FROM atp_task
            WHERE type_id = lane.type_id AND daemon_id IS NULL
              AND collection = lane.collection AND priority = level.priority
              AND due_at BETWEEN level.due AND (SELECT now FROM daemon)
              AND (start_before IS NULL OR start_before > (SELECT now FROM daemon))
              AND EXISTS ( -- only with careful
                  SELECT FROM atp_instance WHERE id = ANY (ARRAY[instance_id]) -- only with careful
                  FOR NO KEY UPDATE SKIP LOCKED -- only with careful
              ) -- only with careful
