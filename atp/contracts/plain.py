"""JSON of clients that know no tags, and JSON as ATP stores it.

ATP stores `{"$date": "2030-01-31"}` where such a client sends and gets `"2030-01-31"`: the schema
of the contract says where a text is a date.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils.dateparse import parse_duration
from django.utils.duration import duration_iso_string

from ..text import is_tagged

Schema = dict[str, Any]

# The format of each tagged value as text.
FORMATS = {
    "$date": "date",
    "$datetime": "date-time",
    "$time": "time",
    "$timedelta": "duration",
    "$decimal": "decimal",
    "$uuid": "uuid",
    "$bytes": "byte",
}
NAN = "$float"
_REF = "#/$defs/"


def to_stored(value: Any, schema: Any, defs: dict[str, Schema]) -> Any:
    """Return a client's value as ATP stores it: with tags where the schema has them.

    What fits nowhere stays as it is, so that the contract's check names it.
    """
    if not isinstance(schema, dict):
        return value
    if "$ref" in schema:
        return to_stored(value, defs.get(schema["$ref"].removeprefix(_REF), {}), defs)
    if is_tagged(schema):
        [tag] = schema["properties"]
        return _with_tag(tag, value)
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        stored = to_stored(value, choice, defs)
        if stored != value:
            return stored
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        return [
            to_stored(each, first[n] if n < len(first) else schema.get("items"), defs)
            for n, each in enumerate(value)
        ]
    if isinstance(value, dict):
        named, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return {name: to_stored(each, named.get(name, rest), defs) for name, each in value.items()}
    return value


def _with_tag(tag: str, value: Any) -> Any:
    if not isinstance(value, str) or tag == NAN:
        return value
    if tag == "$timedelta":
        duration = parse_duration(value)
        if duration is None:
            return value
        return {tag: [duration.days, duration.seconds, duration.microseconds]}
    return {tag: value}


def without_tags(value: Any) -> Any:
    """Return a stored value as clients get it, with text in place of each tagged value."""
    if isinstance(value, list):
        return [without_tags(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(tag, inner)] = value.items()
        if tag in _PLAIN:
            return _PLAIN[tag](inner)
    return {name: without_tags(each) for name, each in value.items()}


def _duration(parts: Any) -> Any:
    try:
        days, seconds, microseconds = parts
        return duration_iso_string(timedelta(days, seconds, microseconds))
    except (TypeError, ValueError, OverflowError):
        return parts


_PLAIN: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys((*FORMATS, NAN), lambda inner: inner),
    "$timedelta": _duration,
    "$object": lambda pairs: {name: without_tags(each) for name, each in pairs},
}
