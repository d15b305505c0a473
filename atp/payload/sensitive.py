"""Sensitive inputs: the arguments of a handler that nobody is shown.

They are stored as all inputs are, and the handler gets them. A mask stands for them wherever inputs
are shown, and for their values in what an attempt writes: its log and the errors that it ends with.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from .binding import POSITIONAL

MASK = "[sensitive]"
# A shorter value is not replaced in text: it stands in many words by chance.
SHORTEST = 4


def masked(inputs: Any, names: Collection[str]) -> Any:
    """Return stored inputs with a mask for each sensitive argument.

    Which of the arguments by position are sensitive is not stored: each gets a mask.
    """
    if not names:
        return inputs
    if not isinstance(inputs, Mapping):
        return MASK
    return {name: _masked(name, value, names) for name, value in inputs.items()}


def _masked(name: str, value: Any, names: Collection[str]) -> Any:
    if name == POSITIONAL:
        return [MASK] * len(value) if isinstance(value, list) else MASK
    return MASK if name in names else value


def masked_json(text: str, names: Collection[str]) -> str:
    """Return the JSON of stored inputs with masks; only a mask if it cannot be read."""
    if not names:
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return json.dumps(masked(found, names), ensure_ascii=False)


def mask_given(inputs: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the name of a sensitive argument that is given as its mask; None if there is none."""
    by_position = inputs.get(POSITIONAL, ()) if names else ()
    if any(_is_mask(value) for value in by_position):
        return POSITIONAL
    return next((name for name in names if _is_mask(inputs.get(name))), None)


def _is_mask(value: Any) -> bool:
    return isinstance(value, str) and value == MASK


def texts_of(inputs: Any, names: Collection[str]) -> tuple[str, ...]:
    """Return the texts of the sensitive values in inputs, the longest first, for :func:`hidden`."""
    if not names or not isinstance(inputs, Mapping):
        return ()
    chosen = [value for name, value in inputs.items() if name in names or name == POSITIONAL]
    found = {text for value in _leaves(chosen) for text in _forms(value)}
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True))


def _leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            waiting += each
        else:
            yield each


def _forms(value: Any) -> tuple[str, ...]:
    """Return the forms in which a value stands in text: plain, and as Python and JSON escape it."""
    if isinstance(value, str):
        return value, repr(value)[1:-1], json.dumps(value)[1:-1]
    if isinstance(value, bytes):
        return value.decode(errors="replace"), repr(value)[2:-1]
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (str(value),)
    return ()


def hidden(text: str, texts: Iterable[str]) -> str:
    """Return text with a mask for each of the sensitive texts in it."""
    for each in texts:
        text = text.replace(each, MASK)
    return text
