"""The annotations of a handler, without its context: each resolved by itself."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

RETURNED = "return"


def annotations_of(
    handler: Callable[..., Any], signature: inspect.Signature
) -> Iterator[tuple[str, Any]]:
    """Yield each name that has an annotation, and that; ``return`` for the outputs.

    An annotation that is text and that cannot be read, as its name is only imported for type
    checkers, is yielded as the exception.
    """
    named = {name: each.annotation for name, each in signature.parameters.items()}
    named[RETURNED] = signature.return_annotation
    names = getattr(inspect.unwrap(handler), "__globals__", {})
    for name, annotation in named.items():
        if annotation is not inspect.Parameter.empty:
            yield name, _resolved(annotation, names)


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    # What stands in the text may raise anything.
    except Exception as error:
        return error
    return found
