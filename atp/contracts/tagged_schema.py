"""JSON Schema of the JSON that ATP stores: types that JSON lacks have tags. It needs pydantic."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..exceptions import NotSerializable
from ..payload import tagged_json

# The words for a value that is tagged, by its tag.
TAGS = {
    "$date": "date",
    "$datetime": "date and time",
    "$time": "time",
    "$timedelta": "duration",
    "$decimal": "decimal",
    "$uuid": "UUID",
    "$bytes": "bytes",
    "$float": "NaN or infinity",
}
_FORMATS = {"$date": "date", "$uuid": "uuid"}
_LENGTH = {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3}
_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of")


def tagged(tag: str) -> JsonSchemaValue:
    """Return the schema of a tagged value: an object with this one key."""
    inner: dict[str, Any] = {"type": "string"}
    if tag in _FORMATS:
        inner["format"] = _FORMATS[tag]
    if tag == "$float":
        inner = {"enum": ["nan", "inf", "-inf"]}
    return {
        "title": TAGS[tag],
        "type": "object",
        "properties": {tag: dict(_LENGTH) if tag == "$timedelta" else inner},
        "required": [tag],
        "additionalProperties": False,
    }


class TaggedSchema(GenerateJsonSchema):
    """The schema of stored values, which are the arguments that a handler receives.

    A date as plain text would reach the handler as text, so only a tagged value fits a date. The
    fields of pydantic models accept both, because a model converts text to dates.
    """

    _models = 0

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        self._models += 1
        try:
            return super().model_schema(schema)
        finally:
            self._models -= 1

    def _tagged(self, tag: str, parsed: JsonSchemaValue) -> JsonSchemaValue:
        return {"anyOf": [parsed, tagged(tag)]} if self._models else tagged(tag)

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return self._tagged("$date", super().date_schema(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        return self._tagged("$datetime", super().datetime_schema(schema))

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        return self._tagged("$time", super().time_schema(schema))

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return self._tagged("$timedelta", super().timedelta_schema(schema))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return self._tagged("$decimal", super().decimal_schema(schema))

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:
        return self._tagged("$uuid", super().uuid_schema(schema))

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return self._tagged("$bytes", super().bytes_schema(schema))

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
