"""The problems of a value with a JSON Schema, each with its path. It needs jsonschema."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from ..words import wording
from .described import is_tagged, words_of

Path = tuple[str | int, ...]

# Keywords whose failure means that the value as a whole is of another kind.
_WHOLE = ("anyOf", "oneOf", "type", "enum", "const")
# The formats whose check needs no other package, so that checks are the same everywhere.
_FORMATS = FormatChecker(formats=["date", "uuid", "ipv4", "ipv6"])


def _tolerant(keyword: str) -> Any:
    """Return the check of a keyword that takes what it cannot check; pydantic checks it later.

    Pydantic's patterns have more than those of Python, and its numbers may be larger than floats.
    """
    check = Draft202012Validator.VALIDATORS[keyword]

    def checked(*given: Any) -> Iterator[ValidationError]:
        try:
            yield from check(*given) or ()
        except (re.error, OverflowError):
            return

    return checked


_Validator = extend(
    Draft202012Validator,
    {
        keyword: _tolerant(keyword)
        for keyword in ("pattern", "patternProperties", "additionalProperties", "multipleOf")
    },
)


def validator_of(schema: dict[str, Any], defs: dict[str, Any]) -> Draft202012Validator:
    """Return the validator of a schema, which may refer to definitions."""
    return _Validator({**schema, "$defs": defs}, format_checker=_FORMATS)


def problems(
    schema: dict[str, Any], defs: dict[str, Any], value: Any
) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each part of a JSON value that does not fit, in order."""
    seen = set()
    for error in validator_of(schema, defs).iter_errors(value):
        for found in _told(error, defs):
            if found not in seen:
                seen.add(found)
                yield found


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
    words = words_of(schema, defs)
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
    return wording.shorten(json.dumps(value, ensure_ascii=False))


def _rule(error: ValidationError) -> str:
    return f"{error.validator} {wording.shorten(json.dumps(error.validator_value))}"
