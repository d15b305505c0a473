"""The schema of a tagged value, as ATP stores a value of a type that JSON lacks."""

from __future__ import annotations

from typing import Any

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
