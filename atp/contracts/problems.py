"""What is wrong with a value, by path (needs jsonschema)."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema

from .. import text
from ..text import is_tagged, schema_words

# The problems of a value with a JSON Schema, each with its path. It needs jsonschema.

Path = tuple[str | int, ...]

# Keywords whose failure means that the value as a whole is of another kind.
_WHOLE = ("anyOf", "oneOf", "type", "enum", "const")
# The formats whose check needs no other package, so that checks are the same everywhere.
_FORMATS = FormatChecker(formats=["date", "uuid", "ipv4", "ipv6"])


def _pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Check a pattern as pydantic does: by an engine that takes linear time for any text."""
    found = _compiled(pattern)
    if found is not None and isinstance(value, str) and not _fits(found, value):
        yield ValidationError("")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, inner in patterns.items():
        found = _compiled(pattern)
        for name, item in value.items():
            if found is None or _fits(found, name):
                yield from validator.descend(item, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, inner: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    patterns = [_compiled(each) for each in schema.get("patternProperties", ())]
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


def _multiple_of(_: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Check a multiple as pydantic does: 0.07 is one of 0.01, although their quotient is not 7."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and isinstance(step, int):
        is_multiple = value % step == 0
    else:
        is_multiple = abs(value) > sys.float_info.max or _fits(_multiples(step), value)
    if not is_multiple:
        yield ValidationError("")


def _unique_items(_: Any, is_unique: bool, value: Any, schema: Any) -> Iterator[ValidationError]:
    if is_unique and isinstance(value, list) and len(set(map(_key, value))) < len(value):
        yield ValidationError("")


def _enum(_: Any, values: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if _key(value) not in _keys(values):
        yield ValidationError("")


def _keys(values: Any) -> frozenset[str]:
    """Return the keys of an enum's values, which are made once for each enum."""
    found = _enums.get(id(values))
    if found is None or found[0] is not values:
        found = _enums[id(values)] = (values, frozenset(map(_key, values)))
    return found[1]


# The enums of the schemas of this process, each with its keys.
_enums: dict[int, tuple[Any, frozenset[str]]] = {}


def _key(value: Any) -> str:
    """Return a text that is the same for values that JSON Schema holds for equal, as 1 and 1.0."""
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
def _compiled(pattern: str) -> SchemaValidator | None:
    """Return the validator of a pattern; None if only a slower engine could read it."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, strict=True))
    except SchemaError:
        return None


@cache
def _multiples(step: float) -> SchemaValidator:
    return SchemaValidator(core_schema.float_schema(multiple_of=step))


def _fits(validator: SchemaValidator, value: Any) -> bool:
    return validator.isinstance_python(value)


# The errors of alternatives during one check, by alternative and part of the value.
_Errors = dict[tuple[Any, int, int], list[ValidationError]]
_known: ContextVar[_Errors] = ContextVar("atp_alternatives")


def _errors_of(validator: Any, schema: Any, index: int, value: Any) -> list[ValidationError]:
    """Return the errors of an alternative; for a part of a value it is judged once in a check.

    Alternatives that contain each other would be judged twice as often at each level.
    """
    known = _known.get(None)
    if known is None or not isinstance(value, dict | list):
        return list(validator.descend(value, schema, schema_path=index))
    name = schema["$ref"] if isinstance(schema, dict) and [*schema] == ["$ref"] else id(schema)
    if (name, index, id(value)) not in known:
        found = list(validator.descend(value, schema, schema_path=index))
        known[name, index, id(value)] = found
    return known[name, index, id(value)]


def _any_of(validator: Any, schemas: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    context = []
    for index, each in enumerate(schemas):
        errors = _errors_of(validator, each, index, value)
        if not errors:
            return
        context += errors
    yield ValidationError("", context=context)


def _one_of(validator: Any, schemas: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    found = [_errors_of(validator, each, index, value) for index, each in enumerate(schemas)]
    fitting = sum(not errors for errors in found)
    if fitting != 1:
        context = [] if fitting else [error for errors in found for error in errors]
        yield ValidationError("", context=context)


_Validator = extend(
    Draft202012Validator,
    {
        "anyOf": _any_of,
        "oneOf": _one_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
        "uniqueItems": _unique_items,
        "enum": _enum,
    },
)


def validator_of(schema: dict[str, Any], defs: dict[str, Any]) -> Draft202012Validator:
    """Return the validator of a schema, which may refer to definitions."""
    return _Validator({**schema, "$defs": defs}, format_checker=_FORMATS)


def problems(
    validator: Draft202012Validator, defs: dict[str, Any], value: Any
) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each part of a JSON value that does not fit, in order."""
    seen = set()
    token = _known.set({})
    try:
        for error in validator.iter_errors(value):
            for found in _told(error, defs):
                if found not in seen:
                    seen.add(found)
                    yield found
    except RecursionError:
        yield (), "It is nested too deeply to be checked."
    finally:
        with suppress(ValueError):  # the generator may be closed in another context
            _known.reset(token)


def _told(error: ValidationError, defs: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    path, schema, value = tuple(error.absolute_path), error.schema, error.instance
    kind = error.validator
    if kind in ("anyOf", "oneOf"):
        branches = _branches(error)
        if len(branches) == 1:
            for inner in branches[0]:
                yield from _told(inner, defs)
            return
    if kind in _WHOLE or is_tagged(schema):
        yield path, _is_not(value, schema, defs)
    elif kind == "required":
        missing = [name for name in schema["required"] if name not in value]
        yield from (((*path, name), "It is required.") for name in missing)
    elif kind == "additionalProperties" and schema[kind] is False:
        unknown = [name for name in value if name not in schema.get("properties", {})]
        yield from (((*path, name), "There is no such field.") for name in unknown)
    else:
        yield path, f"{_short(value)} does not fit: {_rule(error)}."


def _branches(error: ValidationError) -> list[Sequence[ValidationError]]:
    """Return the errors of each alternative that at least has the type of the value."""
    groups: dict[Any, list[ValidationError]] = defaultdict(list)
    for inner in error.context or ():
        groups[inner.schema_path[0]].append(inner)
    return [errors for errors in groups.values() if not any(map(_is_other, errors))]


def _is_other(error: ValidationError) -> bool:
    """Whether the value is of another type than this alternative."""
    at_top = not error.path
    return (at_top and error.validator in ("type", "enum", "const")) or (
        is_tagged(error.schema) and at_top
    )


def _is_not(value: Any, schema: dict[str, Any], defs: dict[str, Any]) -> str:
    words = schema_words(schema, defs)
    told = f"{_short(value)} is not {_article(words)}{words}."
    tags = [tag for each in schema.get("anyOf", [schema]) for tag in _tags(each)]
    if tags and isinstance(value, str):
        told += f' It is written {{"{tags[0]}": …}}: text would stay text.'
    return told


def _tags(schema: dict[str, Any]) -> list[str]:
    """Return the tag of a schema in a list; without a tag, and for ``$float``, an empty list."""
    tags = list(schema["properties"]) if is_tagged(schema) else []
    return [tag for tag in tags if tag != "$float"]


def _article(words: str) -> str:
    if words[0] in '"0123456789[{-' or words.startswith(("text", "null", "any", "true", "false")):
        return ""
    return "an " if words[0].lower() in "aeio" else "a "


def _short(value: Any) -> str:
    if isinstance(value, (dict, list)) and len(value) > 20:
        return f"A value with {len(value)} parts"
    if isinstance(value, str):  # a long text is not written out only to be cut
        value = value[:100]
    return text.shorten(json.dumps(value, ensure_ascii=False))


def _rule(error: ValidationError) -> str:
    return f"{error.validator} {text.shorten(json.dumps(error.validator_value))}"
