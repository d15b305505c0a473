"""JSON Schema of the JSON that ATP stores: types that JSON lacks have tags. It needs pydantic."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..exceptions import NotSerializable
from ..payload import tagged_json
from .marks import mark_model, mark_value, resolved
from .tags import tagged

_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of")


class TaggedSchema(GenerateJsonSchema):
    """The schema of stored values, which are the arguments that a handler receives.

    A date as plain text would reach the handler as text, so only a tagged value fits a date. The
    fields of pydantic models accept both, because a model converts text to dates.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_definitions(self, inputs: Any) -> Any:
        """Return the schemas and the definitions of all inputs, without marks."""
        return resolved(*super().generate_definitions(inputs))

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return mark_model(super().model_schema(schema))

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return mark_value("$date", super().date_schema(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        return mark_value("$datetime", super().datetime_schema(schema))

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        return mark_value("$time", super().time_schema(schema))

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return mark_value("$timedelta", super().timedelta_schema(schema))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return mark_value("$decimal", super().decimal_schema(schema))

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:
        return mark_value("$uuid", super().uuid_schema(schema))

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return mark_value("$bytes", super().bytes_schema(schema))

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        number = super().float_schema(schema)
        if any(name in schema for name in _BOUNDS) or schema.get("allow_inf_nan") is False:
            return number
        return {"anyOf": [number, tagged("$float")]}

    def encode_default(self, dft: Any) -> Any:
        """Return a default in its stored form; a set is sorted, so that the schema is stable."""
        if isinstance(dft, (set, frozenset)):
            dft = sorted(dft, key=repr)
        try:
            return json.loads(tagged_json.to_json(dft))
        except NotSerializable:
            return super().encode_default(dft)
