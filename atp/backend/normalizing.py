"""Values as ``django.tasks`` holds them: inputs of a result, and the keys of a return value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any

from ..graphs.results import Result


def inputs_of_result(value: Any) -> Any:
    """Return inputs as a TaskResult may hold them: values that JSON lacks are text there.

    The shell, the API and schedules can give a task such values, as the time of a slot. For the
    output of another node of a graph there is None: only the attempt knows it.
    """
    match value:
        case Result():
            return None
        case str() | int() | float() | None:
            return value
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {_key(key): inputs_of_result(each) for key, each in value.items()}
        case Sequence():
            return [inputs_of_result(each) for each in value]
        case _:
            return str(value)


def with_text_keys(value: Any) -> Any:
    """Return a normalized return value with the keys that it has in JSON: 7 is "7" there."""
    if isinstance(value, Mapping):
        return {_key(key): with_text_keys(each) for key, each in value.items()}
    return [with_text_keys(each) for each in value] if isinstance(value, list) else value


def _key(key: Any) -> Any:
    return json.dumps(key) if key is None or isinstance(key, int | float) else key
