"""Adapting inputs of an older release to the current handler; and the hash of a signature.

Nothing here writes: stored inputs stay as they were enqueued.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..exceptions import CorruptData, InvalidType
from . import binding
from .binding import Arguments, Signatures
from .sensitive import hidden, texts_of

Inputs = dict[str, Any]
Adapter = Callable[[Inputs], Inputs]

# Hexadecimal digits of a fingerprint: enough to tell the few signatures of one Type apart.
DIGITS = 8
_P = inspect.Parameter


def check_adapter(identifier: str, function: object) -> None:
    """Raise InvalidType unless ``function`` can adapt inputs: it takes one dict."""
    told = f"{identifier}.adapt"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise InvalidType(f"{told}: an adapter is a function of the inputs, not {function!r}.")
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise InvalidType(
            f"{told}: {function.__qualname__}() is called with the inputs alone, a dict: {error}."
        ) from None


def fitted(
    signatures: Signatures,
    adapters: Sequence[Adapter],
    inputs: object,
    sensitive: Collection[str] = (),
) -> tuple[Arguments, str]:
    """Return the arguments for a handler, and the result of :func:`.misfit`: why they do not fit.

    While the inputs do not fit, the adapters are called in order, each with the result of the
    one before. ``inputs`` is the stored object, and an adapter may change it. ``sensitive`` are
    the arguments whose values the result does not quote. Raises CorruptData if ``inputs`` is no
    object of arguments.
    """
    found = binding.unbind(inputs)
    why = binding.misfit(signatures, *found)
    texts = texts_of(inputs, sensitive)
    for adapter in adapters:
        if not why:
            break
        try:
            inputs = adapter(inputs)  # type: ignore[arg-type]
        except Exception as error:
            told = hidden(f"{type(error).__name__}: {error}", texts)
            return found, f"{why} ({adapter.__qualname__}() raised {told})"
        if not isinstance(inputs, dict) or not all(isinstance(name, str) for name in inputs):
            return found, f"{why} ({adapter.__qualname__}() returned {type(inputs).__name__})"
        try:
            found = binding.unbind(inputs)
        except (CorruptData, TypeError):
            return found, f"{why} ({adapter.__qualname__}() returned no arguments)"
        why = binding.misfit(signatures, *found)
    return found, why


def fingerprint(signature: inspect.Signature, serializer: str, adapters: Sequence[Adapter]) -> str:
    """Return a short hash of what a handler takes: handlers with different ones may differ in it.

    The hash covers the names of the parameters, whether each is required, the serializer, and
    the source of the adapters. Order counts only for positional-only parameters.
    """
    parameters = signature.parameters.values()
    named = sorted(_told(p) for p in parameters if p.kind is not _P.POSITIONAL_ONLY)
    placed = [_told(p) for p in parameters if p.kind is _P.POSITIONAL_ONLY]
    facts = [placed, named, serializer, [_source(adapter) for adapter in adapters]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:DIGITS]


def _told(parameter: inspect.Parameter) -> tuple[str, str, bool]:
    kind = parameter.kind.name if parameter.kind in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD) else ""
    return parameter.name, kind, parameter.default is _P.empty


def _source(adapter: Adapter) -> str:
    try:
        return inspect.getsource(adapter)
    except OSError:  # from a shell, say
        return adapter.__code__.co_code.hex()


def shape(inputs: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Return the number of positional arguments, and the sorted names of the others."""
    placed = inputs.get(binding.POSITIONAL, ())
    names = tuple(sorted(name for name in inputs if name != binding.POSITIONAL))
    return len(placed) if isinstance(placed, list | tuple) else 0, names
