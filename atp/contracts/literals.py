"""Literals of Enum members, as ``Literal[Colour.RED]``: the stored value is that of the member.

Pydantic takes the value for ``Colour``, but for a literal only the member, which JSON cannot have.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

# Entries of a core schema that are no schemas.
_OTHER = ("default", "metadata", "serialization")


def validator_of(adapter: Any) -> Any:
    """Return the validator of pydantic's adapter; in literals it takes the values of Enums.

    Classes of pydantic are left alone: ``Model.model_validate()`` in a handler takes only members.
    """
    schema = _widened(adapter.core_schema)
    if schema is adapter.core_schema:
        return adapter.validator
    from pydantic_core import SchemaValidator

    return SchemaValidator(schema)


def _widened(schema: Any) -> Any:
    """Return a part of a core schema with the values of members; the same part if it has none."""
    if type(schema) in (list, tuple):
        parts = [_widened(each) for each in schema]
        is_same = all(made is each for made, each in zip(parts, schema, strict=True))
        return schema if is_same else type(schema)(parts)
    if not isinstance(schema, dict) or hasattr(schema.get("cls"), "__pydantic_validator__"):
        return schema
    kind = schema.get("type")
    # A mapping of names, as of fields, has no kind, and any names.
    skipped = _OTHER if isinstance(kind, str) else ()
    found = {key: each if key in skipped else _widened(each) for key, each in schema.items()}
    if kind == "literal":
        values = _values(schema["expected"])
        found["expected"] = [*schema["expected"], *values] if values else schema["expected"]
    elif kind == "tagged-union":
        for member in filter(_is_member, schema["choices"]):
            found["choices"] = {member.value: found["choices"][member], **found["choices"]}
    return schema if all(found[key] is each for key, each in schema.items()) else found


def _values(members: Iterable[Any]) -> list[Any]:
    return [each.value for each in members if _is_member(each)]


def _is_member(value: Any) -> bool:
    return isinstance(value, Enum)
