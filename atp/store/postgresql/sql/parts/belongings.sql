-- Remove the rows that belong to the Instances in "gone". Part of the statements that remove
-- Instances.
inputs AS (
    DELETE FROM atp_inputs inputs USING gone WHERE inputs.instance_id = ANY (ARRAY[gone.id])
),
responses AS (
    DELETE FROM atp_response response USING gone WHERE response.instance_id = ANY (ARRAY[gone.id])
),
steps AS (
    DELETE FROM atp_step step USING gone WHERE step.instance_id = ANY (ARRAY[gone.id])
),
logs AS (
    DELETE FROM atp_logrecord log USING gone WHERE log.instance_id = ANY (ARRAY[gone.id])
)
