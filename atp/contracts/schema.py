"""JSON Schemas for the JSON that ATP stores: what in a value does not fit, and their generator.

Needs pydantic and jsonschema.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, SchemaValidator, core_schema

from .. import text
from ..exceptions import NotSerializable
from ..payload import json as tagged_json
from ..text import describe_schema, is_tagged

# The problems in a JSON value according to a JSON Schema

Path = tuple[str | int, ...]

# Keywords whose failure means that the whole value is of another kind.
_KIND_KEYWORDS = ("anyOf", "oneOf", "type", "enum", "const")
# jsonschema checks these formats without other packages, so checks are the same everywhere.
_PROBLEMS_FORMATS = FormatChecker(formats=["date", "uuid", "ipv4", "ipv6"])


# Keywords that pydantic understands in another way than jsonschema, or checks faster.


def _check_pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Match a pattern with pydantic's regex engine, which takes linear time for any text."""
    compiled = _compile(pattern)
    if compiled is not None and isinstance(value, str) and not _fits(compiled, value):
        yield ValidationError("")


def _check_pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, inner in patterns.items():
        compiled = _compile(pattern)
        for name, item in value.items():
            if compiled is None or _fits(compiled, name):
                yield from validator.descend(item, inner, path=name, schema_path=pattern)


def _check_additional_properties(
    validator: Any, inner: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    patterns = [_compile(each) for each in schema.get("patternProperties", ())]
    extra = [
        name
        for name in value
        if name not in known and not any(each is None or _fits(each, name) for each in patterns)
    ]
    if isinstance(inner, dict):
        for name in extra:
            yield from validator.descend(value[name], inner, path=name)
    elif inner is False and extra:
        yield ValidationError("")


def _check_multiple_of(_: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Check ``multipleOf`` as pydantic does, so that 0.07 counts as a multiple of 0.01."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and isinstance(step, int):
        is_multiple = value % step == 0
    else:
        is_multiple = abs(value) > sys.float_info.max or _fits(_multiple_validator(step), value)
    if not is_multiple:
        yield ValidationError("")


def _check_unique_items(
    _: Any, is_unique: bool, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if is_unique and isinstance(value, list) and len(set(map(_key, value))) < len(value):
        yield ValidationError("")


def _check_enum(_: Any, values: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if _key(value) not in _enum_keys(values):
        yield ValidationError("")


def _enum_keys(values: Any) -> frozenset[str]:
    """Return the comparison keys of an enum's values, which are cached for each enum."""
    entry = _keys_by_enum.get(id(values))
    if entry is None or entry[0] is not values:
        entry = _keys_by_enum[id(values)] = (values, frozenset(map(_key, values)))
    return entry[1]


# Each enum list in a schema, with the comparison keys of its values, by id() of the list.
_keys_by_enum: dict[int, tuple[Any, frozenset[str]]] = {}


def _key(value: Any) -> str:
    """Return the same text for values that JSON Schema considers equal, such as 1 and 1.0."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    return value


@cache
def _compile(pattern: str) -> SchemaValidator | None:
    """Return a validator for a pattern, or None if pydantic's engine cannot compile it."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, strict=True))
    except SchemaError:
        return None


@cache
def _multiple_validator(step: float) -> SchemaValidator:
    return SchemaValidator(core_schema.float_schema(multiple_of=step))


def _fits(validator: SchemaValidator, value: Any) -> bool:
    return validator.isinstance_python(value)


# Alternatives. During a check, the errors are cached by alternative and part of the value.
_Errors = dict[tuple[Any, int, int], list[ValidationError]]
_judged: ContextVar[_Errors] = ContextVar("atp_alternatives")


def _errors_of(validator: Any, schema: Any, index: int, value: Any) -> list[ValidationError]:
    """Return the errors of an alternative, and cache them during one check of a value.

    Without the cache, nested alternatives would double the work at each level.
    """
    judged = _judged.get(None)
    if judged is None or not isinstance(value, dict | list):
        return list(validator.descend(value, schema, schema_path=index))
    name = schema["$ref"] if isinstance(schema, dict) and [*schema] == ["$ref"] else id(schema)
    key = name, index, id(value)
    if key not in judged:
        judged[key] = list(validator.descend(value, schema, schema_path=index))
    return judged[key]


def _check_any_of(
    validator: Any, schemas: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    context = []
    for index, each in enumerate(schemas):
        errors = _errors_of(validator, each, index, value)
        if not errors:
            return
        context += errors
    yield ValidationError("", context=context)


def _check_one_of(
    validator: Any, schemas: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    branches = [_errors_of(validator, each, index, value) for index, each in enumerate(schemas)]
    fitting = sum(not errors for errors in branches)
    if fitting != 1:
        context = [] if fitting else [error for errors in branches for error in errors]
        yield ValidationError("", context=context)


_Validator = extend(
    Draft202012Validator,
    {
        "anyOf": _check_any_of,
        "oneOf": _check_one_of,
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": _check_additional_properties,
        "multipleOf": _check_multiple_of,
        "uniqueItems": _check_unique_items,
        "enum": _check_enum,
    },
)


def json_validator(schema: dict[str, Any], defs: dict[str, Any]) -> Draft202012Validator:
    """Return a validator for a schema that can refer to the definitions in ``defs``."""
    return _Validator({**schema, "$defs": defs}, format_checker=_PROBLEMS_FORMATS)


def problems(
    validator: Draft202012Validator, defs: dict[str, Any], value: Any
) -> Iterator[tuple[Path, str]]:
    """Yield the path and a message for each part of a JSON value that does not fit the schema."""
    seen = set()
    token = _judged.set({})
    try:
        for error in validator.iter_errors(value):
            for problem in _describe_error(error, defs):
                if problem not in seen:
                    seen.add(problem)
                    yield problem
    except RecursionError:
        yield (), "It is nested too deeply to be checked."
    finally:
        with suppress(ValueError):  # the generator may be closed in another context
            _judged.reset(token)


def _describe_error(error: ValidationError, defs: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    path, schema, value = tuple(error.absolute_path), error.schema, error.instance
    kind = error.validator
    if kind in ("anyOf", "oneOf"):
        branches = _branches(error)
        if len(branches) == 1:
            for inner in branches[0]:
                yield from _describe_error(inner, defs)
            return
    if kind in _KIND_KEYWORDS or is_tagged(schema):
        yield path, _describe_mismatch(value, schema, defs)
    elif kind == "required":
        missing = [name for name in schema["required"] if name not in value]
        yield from (((*path, name), "It is required.") for name in missing)
    elif kind == "additionalProperties" and schema[kind] is False:
        unknown = [name for name in value if name not in schema.get("properties", {})]
        yield from (((*path, name), "There is no such field.") for name in unknown)
    else:
        yield path, f"{_shorten_value(value)} does not fit: {_describe_rule(error)}."


def _branches(error: ValidationError) -> list[Sequence[ValidationError]]:
    """Return the errors of each alternative, except those where the value has the wrong type."""
    groups: dict[Any, list[ValidationError]] = defaultdict(list)
    for inner in error.context or ():
        groups[inner.schema_path[0]].append(inner)
    return [errors for errors in groups.values() if not any(map(_is_of_other_type, errors))]


def _is_of_other_type(error: ValidationError) -> bool:
    """Return True if an alternative failed because the value has another type."""
    at_top = not error.path
    return (at_top and error.validator in ("type", "enum", "const")) or (
        is_tagged(error.schema) and at_top
    )


def _describe_mismatch(value: Any, schema: dict[str, Any], defs: dict[str, Any]) -> str:
    words = describe_schema(schema, defs)
    message = f"{_shorten_value(value)} is not {_article(words)}{words}."
    tags = [tag for each in schema.get("anyOf", [schema]) for tag in _tags(each)]
    if tags and isinstance(value, str):
        message += f' Write it as {{"{tags[0]}": …}}, because text stays text.'
    return message


def _tags(schema: dict[str, Any]) -> list[str]:
    """Return a list with the schema's tag, or an empty list without a tag or for ``$float``."""
    tags = list(schema["properties"]) if is_tagged(schema) else []
    return [tag for tag in tags if tag != "$float"]


def _article(words: str) -> str:
    if words[0] in '"0123456789[{-' or words.startswith(("text", "null", "any", "true", "false")):
        return ""
    return "an " if words[0].lower() in "aeio" else "a "


def _shorten_value(value: Any) -> str:
    if isinstance(value, (dict, list)) and len(value) > 20:
        return f"A value with {len(value)} parts"
    if isinstance(value, str):  # do not encode a long text only to cut it
        value = value[:100]
    return text.shorten(json.dumps(value, ensure_ascii=False))


def _describe_rule(error: ValidationError) -> str:
    return f"{error.validator} {text.shorten(json.dumps(error.validator_value))}"


# The generator of JSON Schemas
#
# Stored JSON has tags for types that JSON lacks, for example ``{"$date": "2026-01-31"}``.

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
