"""Schemas of contracts as OpenAPI 3.0.

A contract is a JSON Schema (2020-12) of stored JSON, in which values that JSON lacks have tags. To
clients of OGC API – Processes they are text (see :mod:`atp.contracts.plain`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..contracts.plain import FORMATS, NAN, without_tags
from ..text import is_tagged

Schema = dict[str, Any]

_REF = "#/$defs/"
# What a schema of OpenAPI 3.0 may say in the same words as one of 2020-12.
_SAME = frozenset(
    (
        *("title", "description", "type", "format", "enum", "default", "pattern", "required"),
        *("minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"),
        *("uniqueItems", "minProperties", "maxProperties", "deprecated", "contentMediaType"),
    )
)
# Keywords of JSON Schema that say nothing of which values fit, or whose loss only allows more.
_LEFT_OUT = frozenset(("$defs", "$schema", "$comment", "examples", "patternProperties"))


class NotDescribable(Exception):
    """A schema says what OpenAPI 3.0 cannot say; the message names the keyword."""


def to_openapi(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Return a schema of stored JSON as one of OpenAPI 3.0, for the JSON of clients.

    References are put in place; where one comes back to itself, any object fits. Raises
    NotDescribable.
    """
    return _Translation(defs).schema(schema, ())


class _Translation:
    def __init__(self, defs: dict[str, Schema]) -> None:
        self._defs = defs

    def schema(self, schema: Any, within: tuple[str, ...]) -> Schema:
        if schema is True or schema == {}:
            return {}
        if schema is False:
            return {"not": {}}
        if is_tagged(schema):
            [tag] = schema["properties"]
            return _words(schema) | {"type": "string", "format": FORMATS.get(tag, "float")}
        if "$ref" in schema:
            return _words(schema) | self._referred(schema["$ref"], within)
        translated: Schema = {}
        for keyword, value in schema.items():
            if keyword in _SAME and not isinstance(value, list | dict):
                translated[keyword] = value
            elif keyword == "default":
                translated["default"] = without_tags(value)
            elif keyword in _SAME:
                translated[keyword] = value
            elif keyword not in _LEFT_OUT and not keyword.startswith("x-"):
                self._keyword(translated, keyword, value, within)
        if "anyOf" in translated:
            translated = _merge_choices(translated)
        return translated

    def _referred(self, reference: str, within: tuple[str, ...]) -> Schema:
        name = reference.removeprefix(_REF)
        if name in within or name not in self._defs:
            return {"type": "object"}
        return self.schema(self._defs[name], (*within, name))

    def _keyword(
        self, translated: Schema, keyword: str, value: Any, within: tuple[str, ...]
    ) -> None:
        match keyword:
            case "properties":
                translated["properties"] = {
                    name: self.schema(each, within) for name, each in value.items()
                }
            case "items" | "not":
                # Beside prefixItems, ``items`` says that no others may follow.
                if value is not False:
                    translated.setdefault(keyword, self.schema(value, within))
            case "additionalProperties":
                is_flag = isinstance(value, bool)
                translated[keyword] = value if is_flag else self.schema(value, within)
            case "anyOf" | "oneOf" | "allOf":
                choices = [self.schema(each, within) for each in value if not _is_nan(each)]
                translated["anyOf" if keyword == "oneOf" else keyword] = choices
            case "const":
                translated["enum"] = [value]
            case "prefixItems":
                kinds = _without_repeats(self.schema(each, within) for each in value)
                translated["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
                translated |= {"minItems": len(value), "maxItems": len(value)}
            case "exclusiveMinimum":
                translated |= {"minimum": value, keyword: True}
            case "exclusiveMaximum":
                translated |= {"maximum": value, keyword: True}
            case "discriminator" | "propertyNames" | "contentEncoding" | "readOnly":
                pass
            case _:
                raise NotDescribable(f"its contract says {keyword!r}, which OpenAPI 3.0 cannot say")


def _words(schema: Schema) -> Schema:
    """Return what a schema says in words, and its default."""
    words = {name: schema[name] for name in ("description",) if name in schema}
    if "default" in schema:
        words["default"] = without_tags(schema["default"])
    return words


def _is_nan(schema: Any) -> bool:
    return is_tagged(schema) and NAN in schema["properties"]


def _without_repeats(schemas: Iterable[Schema]) -> list[Schema]:
    found: list[Schema] = []
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return found


def _merge_choices(schema: Schema) -> Schema:
    """Say null as ``nullable``, and a single choice without ``anyOf``."""
    schema = dict(schema)
    all_choices = _without_repeats(schema.pop("anyOf"))
    choices = [each for each in all_choices if not _is_null(each)]
    if len(choices) < len(all_choices):
        schema["nullable"] = True
    if len(choices) == 1:
        return choices[0] | schema
    return schema | ({"anyOf": choices} if choices else {"enum": [None]})


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null" or schema.get("enum") == [None]
