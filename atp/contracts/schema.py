"""The schema of tagged JSON (needs pydantic)."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..exceptions import NotSerializable
from ..payload import json as tagged_json

# The schema of a tagged value, as ATP stores a value of a type that JSON lacks.

Schema = dict[str, Any]

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


def tagged(tag: str) -> Schema:
    """Return the schema of a tagged value: an object with this one key."""
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


# Marks in a schema: where a tagged value stands, and where a model of pydantic begins.
#
# A model converts text to dates, a handler does not. Pydantic makes one definition of a class,
# wherever it is used, and its hooks change a schema after it is made. So a schema is first made
# with marks, and then resolved as a whole.

Key = TypeVar("Key")

_TAG = "x-atp-tag"
_MODEL = "x-atp-model"

_REF = "#/$defs/"
# The suffix of the name that a definition has in models, if it differs there.
_IN_MODEL = "-in-model"
# Keywords whose values are no schemas, and those whose keys are names.
_DATA = ("const", "default", "enum", "examples")
_NAMED = ("properties", "patternProperties", "mapping")


def mark_value(tag: str, parsed: Schema) -> Schema:
    """Return the schema of a value that has a tag; ``parsed`` is what pydantic converts."""
    return {**parsed, _TAG: {"tag": tag, "parsed": parsed}}


def mark_model(schema: Schema) -> Schema:
    """Return the schema of a model of pydantic, marked as such."""
    made = {**schema, _MODEL: True}
    if "$ref" in made:
        # A root model. The hooks of pydantic would move a mark beside a reference to its target.
        made["allOf"] = [{"$ref": made.pop("$ref")}]
    return made


def resolved(
    schemas: Mapping[Key, Schema], defs: Mapping[str, Schema]
) -> tuple[dict[Key, Schema], dict[str, Schema]]:
    """Return schemas and definitions without marks.

    In a model a value may be text or tagged, elsewhere only tagged. A definition that differs in a
    model is there twice.
    """
    differing: set[str] = set()
    while more := set(_differing(defs, differing)) - differing:
        differing |= more
    made = {name: _resolved(schema, False, differing) for name, schema in defs.items()}
    for name in sorted(differing):
        # Messages show the title.
        made[name + _IN_MODEL] = {"title": name, **_resolved(defs[name], True, differing)}
    return {key: _resolved(schema, False, differing) for key, schema in schemas.items()}, made


def _differing(defs: Mapping[str, Schema], known: Container[str]) -> Iterable[str]:
    """Yield the names of definitions that differ in a model, if those that are known differ."""
    for name, schema in defs.items():
        if _resolved(schema, False, known) != _resolved(schema, True, known):
            yield name


def _resolved(schema: Any, in_model: bool, differing: Container[str]) -> Any:
    if isinstance(schema, list):
        return [_resolved(each, in_model, differing) for each in schema]
    if isinstance(schema, str):
        is_other = in_model and schema.startswith(_REF) and schema[len(_REF) :] in differing
        return schema + _IN_MODEL if is_other else schema
    if not isinstance(schema, dict):
        return schema
    in_model = in_model or _MODEL in schema
    made: Schema = {}
    for key, value in schema.items():
        if key in _DATA:
            made[key] = value
        elif key in _NAMED and isinstance(value, dict):
            made[key] = {name: _resolved(each, in_model, differing) for name, each in value.items()}
        elif key == "propertyNames":
            made[key] = _of_key(value, differing)
        elif key == "anyOf":
            made |= _any_of(_resolved(value, in_model, differing))
        elif key not in (_TAG, _MODEL):
            made[key] = _resolved(value, in_model, differing)
    return _of_tag(made, in_model, **schema[_TAG]) if _TAG in schema else made


def _of_key(schema: Any, differing: Container[str]) -> Any:
    """Return the schema of the keys of a mapping: they are text, also in a handler."""
    if isinstance(schema, dict) and _TAG in schema:
        return schema[_TAG]["parsed"]
    return _resolved(schema, True, differing)


def _of_tag(schema: Schema, in_model: bool, *, tag: str, parsed: Schema) -> Schema:
    """Return the schema of a value that has a tag, with what fields and hooks have added.

    A hook of pydantic, as that of UUID4, makes it text of some format: that is left out. Pydantic
    checks the value anyway.
    """
    conversion = {"type", "format", "anyOf"}
    added = {
        key: value
        for key, value in schema.items()
        if key not in conversion and parsed.get(key) != value
    }
    if in_model:
        return {**_any_of([parsed, tagged(tag)]), **added}
    return {**tagged(tag), **added}


def _any_of(schemas: list[Any]) -> Schema:
    """Return the schema of alternatives; those of an alternative are among them."""
    found: list[Any] = []
    for schema in schemas:
        is_nested = isinstance(schema, dict) and [*schema] == ["anyOf"]
        found += _any_of(schema["anyOf"])["anyOf"] if is_nested else [schema]
    return {"anyOf": found}


# JSON Schema of the JSON that ATP stores: types that JSON lacks have tags. It needs pydantic.

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
