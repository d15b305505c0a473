"""Generates JSON Schemas for the JSON that ATP stores. Needs pydantic.

Stored JSON has tags for types that JSON lacks, for example ``{"$date": "2026-01-31"}``.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..exceptions import NotSerializable
from ..payload import json as tagged_json

Schema = dict[str, Any]
Key = TypeVar("Key")

# The name of each type that has a tag, by tag.
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


def make_tagged(tag: str) -> Schema:
    """Return the schema of a tagged value, which is an object with the tag as its only key."""
    inner: Schema = {"type": "string"}
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


# Marks in a schema show where a tagged value can be, and where a pydantic model begins.
#
# A model converts text to dates, but a handler does not. Pydantic makes one definition of a class
# for all places that use it, and a class's hooks can change its schema later. So pydantic first
# makes a schema with marks, and then this module replaces the marks in the whole schema.

_TAG = "x-atp-tag"
_MODEL = "x-atp-model"

_REF = "#/$defs/"
# A definition that differs in models has this suffix to its name there.
_IN_MODEL = "-in-model"
# Keywords whose values are not schemas, and keywords whose values have schemas by name.
_VALUES = ("const", "default", "enum", "examples")
_BY_NAME = ("properties", "patternProperties", "mapping")


def mark_value(tag: str, parsed: Schema) -> Schema:
    """Return ``parsed``, the schema of a value's text, with a mark for the tagged form."""
    return {**parsed, _TAG: {"tag": tag, "parsed": parsed}}


def mark_model(schema: Schema) -> Schema:
    """Return the schema of a pydantic model with a mark that identifies it as a model."""
    marked = {**schema, _MODEL: True}
    if "$ref" in marked:
        # A root model. Pydantic's hooks would move a mark beside a reference to its target.
        marked["allOf"] = [{"$ref": marked.pop("$ref")}]
    return marked


def resolve_marks(
    schemas: Mapping[Key, Schema], defs: Mapping[str, Schema]
) -> tuple[dict[Key, Schema], dict[str, Schema]]:
    """Replace the marks in schemas and definitions by what they stand for.

    Inside a pydantic model a date can be plain text or a tagged value, but elsewhere only a tagged
    value. So a definition that differs inside a model gets a second version.
    """
    differing: set[str] = set()
    while more := set(_find_differing(defs, differing)) - differing:
        differing |= more
    definitions = {name: _resolve(schema, False, differing) for name, schema in defs.items()}
    for name in sorted(differing):
        # Messages show the title.
        definitions[name + _IN_MODEL] = {"title": name, **_resolve(defs[name], True, differing)}
    resolved = {key: _resolve(schema, False, differing) for key, schema in schemas.items()}
    return resolved, definitions


def _find_differing(defs: Mapping[str, Schema], known: Container[str]) -> Iterable[str]:
    """Yield the definitions that differ inside a model, if those in ``known`` differ."""
    for name, schema in defs.items():
        if _resolve(schema, False, known) != _resolve(schema, True, known):
            yield name


def _resolve(schema: Any, in_model: bool, differing: Container[str]) -> Any:
    if isinstance(schema, list):
        return [_resolve(each, in_model, differing) for each in schema]
    if isinstance(schema, str):
        is_other = in_model and schema.startswith(_REF) and schema[len(_REF) :] in differing
        return schema + _IN_MODEL if is_other else schema
    if not isinstance(schema, dict):
        return schema
    in_model = in_model or _MODEL in schema
    new: Schema = {}
    for key, value in schema.items():
        if key in _VALUES:
            new[key] = value
        elif key in _BY_NAME and isinstance(value, dict):
            new[key] = {name: _resolve(each, in_model, differing) for name, each in value.items()}
        elif key == "propertyNames":
            new[key] = _resolve_key(value, differing)
        elif key == "anyOf":
            new |= _flatten_any_of(_resolve(value, in_model, differing))
        elif key not in (_TAG, _MODEL):
            new[key] = _resolve(value, in_model, differing)
    return _resolve_tag(new, in_model, **schema[_TAG]) if _TAG in schema else new


def _resolve_key(schema: Any, differing: Container[str]) -> Any:
    """Return the schema for a mapping's keys, which are always text."""
    if isinstance(schema, dict) and _TAG in schema:
        return schema[_TAG]["parsed"]
    return _resolve(schema, True, differing)


def _resolve_tag(schema: Schema, in_model: bool, *, tag: str, parsed: Schema) -> Schema:
    """Return the schema of a tagged value, with the keywords that fields and hooks added.

    Some pydantic hooks, such as UUID4's, add keywords about the format of a text. Those keywords
    are omitted, because pydantic checks the value anyway.
    """
    conversion = {"type", "format", "anyOf"}
    added = {
        key: value
        for key, value in schema.items()
        if key not in conversion and parsed.get(key) != value
    }
    if in_model:
        return {**_flatten_any_of([parsed, make_tagged(tag)]), **added}
    return {**make_tagged(tag), **added}


def _flatten_any_of(schemas: list[Any]) -> Schema:
    """Return an ``anyOf`` schema without an ``anyOf`` directly inside it."""
    flat: list[Any] = []
    for schema in schemas:
        is_nested = isinstance(schema, dict) and [*schema] == ["anyOf"]
        flat += _flatten_any_of(schema["anyOf"])["anyOf"] if is_nested else [schema]
    return {"anyOf": flat}


# Pydantic's generator, which makes the schemas with marks.

# A float with one of these bounds cannot be NaN or infinite.
_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of")


class TaggedSchema(GenerateJsonSchema):
    """Generates the schemas of stored values, such as a handler's arguments.

    For a date only a tagged value is valid, because the handler would receive plain text as text. A
    field of a pydantic model accepts both forms, because the model converts text to dates.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_definitions(self, inputs: Any) -> Any:
        """Return the schemas and definitions of all inputs, with the marks replaced."""
        return resolve_marks(*super().generate_definitions(inputs))

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
        return {"anyOf": [number, make_tagged("$float")]}

    def encode_default(self, dft: Any) -> Any:
        """Return a default as the queue stores it. A set is sorted for a reproducible schema."""
        if isinstance(dft, (set, frozenset)):
            dft = sorted(dft, key=repr)
        try:
            return json.loads(tagged_json.to_json(dft))
        except NotSerializable:
            return super().encode_default(dft)
