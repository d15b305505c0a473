-- Return the shapes of the inputs of live Instances with a key above "after", grouped by Type and
-- by the names of the arguments. The lateral joins walk the primary keys of Inputs and Instances
-- for these Tasks, whatever the planner believes of the tables. Inputs in the format json that are
-- no JSON object cause an error.
--
-- Cost of a call: 0 rows written, 0 locked. It looks twice for each live Instance.
SELECT type_id, format, placed, names, has_results,
    array_agg(instance_id ORDER BY instance_id), min(created)
FROM (
    SELECT task.instance_id, task.type_id, inputs.format, instance.created,
        CASE WHEN inputs.format = 'json'
            THEN coalesce(json_array_length(inputs.data::json -> '*'), 0) ELSE 0 END AS placed,
        CASE WHEN inputs.format = 'json' THEN (
            SELECT coalesce(array_agg(name ORDER BY name), '{}')
            FROM json_object_keys(inputs.data::json) AS name
            WHERE name <> '*'
        ) END AS names,
        inputs.format = 'json' AND strpos(inputs.data, '"$result"') > 0 AS has_results
    FROM (
        SELECT instance_id, type_id FROM atp_task
        WHERE instance_id > %(after)s::bigint
        ORDER BY instance_id
        LIMIT %(limit)s::int
    ) task
    LEFT JOIN LATERAL (
        SELECT format, data FROM atp_inputs WHERE instance_id = task.instance_id LIMIT 1
    ) inputs ON true
    LEFT JOIN LATERAL (
        SELECT created FROM atp_instance WHERE id = task.instance_id LIMIT 1
    ) instance ON true
) looked_at
GROUP BY type_id, format, placed, names, has_results
