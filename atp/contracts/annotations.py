"""The annotations of a handler, except its context: each is resolved by itself."""

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
    """Yield pairs of name and annotation; the name of the outputs is ``return``.

    If an annotation is text that cannot be evaluated, as a name imported only for type checkers,
    the exception is yielded in its place.
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
    # Code in the text of an annotation may raise anything.
    except Exception as error:
        return error
    return found
