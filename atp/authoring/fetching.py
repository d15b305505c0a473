"""Inputs by reference: the worker fetches what is at an address before it calls the handler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import contracts, outside
from ..conf import settings
from ..contracts.plain import to_stored
from ..exceptions import Fatal, Retry
from ..operations.registry import Declaration
from ..payload.json import from_plain
from ..payload.references import Reference
from ..text import is_tagged

# The longest time for one address, in seconds.
WITHIN = 600.0


def fetched(task_type: Declaration, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored inputs with what is at the addresses in place of the references.

    Raises Fatal if an address may not be reached, or if what is there does not fit the contract,
    and Retry if it cannot be reached now.
    """
    found = {name: _value(task_type, name, each) for name, each in inputs.items()}
    problems = contracts.check(task_type, found)
    if problems:
        raise Fatal(" ".join(f"{path}: {text}" for path, text in problems))
    return found


def _value(task_type: Declaration, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(task_type, name, each) for each in value]
    if not isinstance(value, Reference):
        return value
    try:
        body, content_type = outside.fetch(value.href, most=settings.OGC_MAX_FETCH, seconds=WITHIN)
        return _converted(task_type, name, body, value.content_type or content_type)
    except (outside.Refused, ValueError) as error:
        raise Fatal(f"{name}: {error}") from None
    except outside.Failed as error:
        raise Retry(f"{name}: {error}") from None


def _converted(task_type: Declaration, name: str, body: bytes, content_type: str) -> Any:
    """Return a body as the handler wants it: JSON as a value, text as str, all else as bytes."""
    contract = contracts.schema_of(task_type)
    schema = {} if contract is None else contract.parameters.get(name, {})
    kind = content_type.partition(";")[0].strip().lower()
    if is_tagged(schema) and "$bytes" in schema["properties"]:
        return body
    if kind == "application/json" or kind.endswith("+json"):
        defs = {} if contract is None else contract.defs
        return from_plain(to_stored(json.loads(body), schema, defs))
    return body.decode() if kind.startswith("text/") or schema.get("type") == "string" else body
