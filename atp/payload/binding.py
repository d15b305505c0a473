"""Arguments and the handler's signature: binding, adapting those of an older release, masking
sensitive ones.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from ..exceptions import CorruptData, InvalidInputs, InvalidType
from ..text import did_you_mean

# Binding of inputs to the handler's signature.
#
# Inputs are stored as an object of keyword arguments, which reads well in pages and APIs.
# Arguments that can only be given by position are a list under ``"*"``.

POSITIONAL = "*"
_P = inspect.Parameter

# The names of all parameters, and of the required ones.
Plain = tuple[dict[str, None], set[str]]
Signatures = tuple[inspect.Signature, Plain | None]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Inputs(inspect.Signature):
    """A handler's signature without the context. No argument may have the context's name."""

    context: str = ""

    def bind(self, /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        if self.context in kwargs:
            raise TypeError(f"{self.context!r} is the context, and no argument")
        return super().bind(*args, **kwargs)


def signature_of(handler: Callable[..., Any]) -> inspect.Signature:
    """Return the handler's signature without its first parameter, the context.

    Raises InvalidInputs if there is no such parameter.
    """
    signature = inspect.signature(handler)
    if not _takes_context(signature):
        # A decorator may take the context itself, and wrap a function that takes none.
        own = inspect.signature(handler, follow_wrapped=False)
        if _takes_context(own):
            taken, *_ = own.parameters.values()
            return _without(taken, list(signature.parameters.values()), signature)
        raise InvalidInputs(
            f"{handler.__qualname__}() needs a first parameter, the context: "
            f"def {handler.__name__}(context, …)"
        )
    taken, *parameters = signature.parameters.values()
    return _without(taken, parameters, signature)


def _takes_context(signature: inspect.Signature) -> bool:
    first = next(iter(signature.parameters.values()), None)
    return first is not None and first.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)


def _without(
    context: inspect.Parameter,
    parameters: list[inspect.Parameter],
    whole: inspect.Signature,
) -> Inputs:
    signature = Inputs(parameters, return_annotation=whole.return_annotation)
    # If the context is positional-only, an argument may have its name.
    if context.kind is _P.POSITIONAL_OR_KEYWORD:
        signature.context = context.name
    return signature


def bind(
    name: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plain: Plain | None = None,
) -> dict[str, Any]:
    """Return the arguments as a dict from which :func:`unbind` restores them.

    ``plain`` is the result of :func:`plain_of` for the signature, for speed. Raises
    InvalidInputs, with Python's own words, if the arguments do not fit.
    """
    if plain is not None and not args and plain[1] <= kwargs.keys() <= plain[0].keys():
        return {parameter: kwargs[parameter] for parameter in plain[0] if parameter in kwargs}
    for given in kwargs:
        if not isinstance(given, str):
            raise InvalidInputs(f"An argument of {name} is called {given!r}; names are text.")
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInputs(
            f"Inputs of {name!r} do not fit {name}{signature}: {error}.{_hint(signature, kwargs)}",
            argument=_unknown(signature, kwargs) or _missing(signature, args, kwargs),
        ) from None
    by_position = any(
        p.kind is _P.VAR_POSITIONAL and bound.arguments.get(p.name)
        for p in signature.parameters.values()
    )
    positional, inputs = [], {}
    for parameter in signature.parameters.values():
        if parameter.name not in bound.arguments:
            continue
        value = bound.arguments[parameter.name]
        if parameter.kind is _P.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.kind is _P.POSITIONAL_ONLY or (
            parameter.kind is _P.POSITIONAL_OR_KEYWORD and by_position
        ):
            positional.append(value)
        elif parameter.kind is _P.VAR_KEYWORD:
            inputs.update(value)
        else:
            inputs[parameter.name] = value
    if POSITIONAL in inputs:
        raise InvalidInputs(f"Inputs of {name!r}: an argument cannot be called {POSITIONAL!r}.")
    return {POSITIONAL: positional, **inputs} if positional else inputs


def as_called(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked arguments as a dict that keeps how each was given: by position or name."""
    return {POSITIONAL: list(args), **kwargs} if args else dict(kwargs)


def misfit(signatures: Signatures, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why arguments do not fit a handler, in words without a full stop; empty if they do.

    ``signatures`` are its signature and the result of :func:`plain_of` for it. Only the names
    and the number of the arguments count, not their values.
    """
    signature, plain = signatures
    if plain is not None and not args and plain[1] <= kwargs.keys() <= plain[0].keys():
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = _unknown(signature, kwargs)
        known = {name: value for name, value in kwargs.items() if name in signature.parameters}
        missing = _missing(signature, args, known)
        told = [f"argument {missing!r} is required"] if missing else []
        if unknown:
            hint = did_you_mean(unknown, signature.parameters).strip()
            told.append(f"there is no argument {unknown!r}{hint and f' (d{hint[1:]})'}")
        return "; ".join(told) or str(error)
    return ""


@cache
def signatures_of(handler: Callable[..., Any]) -> Signatures:
    """Return the signature of a handler, and the result of :func:`plain_of` for it."""
    signature = signature_of(handler)
    return signature, plain_of(signature)


def plain_of(signature: inspect.Signature) -> Plain | None:
    """Return the names of all parameters, and of the required ones.

    Return None if a parameter cannot be given by name.
    """
    parameters = signature.parameters
    if any(p.kind not in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY) for p in parameters.values()):
        return None
    if POSITIONAL in parameters:
        return None
    required = {name for name, p in parameters.items() if p.default is _P.empty}
    return dict.fromkeys(parameters), required


def _unknown(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str | None:
    """Return the name of the first argument that the signature does not have, or None."""
    if any(p.kind is _P.VAR_KEYWORD for p in signature.parameters.values()):
        return None
    return next((name for name in kwargs if name not in signature.parameters), None)


def _hint(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str:
    name = _unknown(signature, kwargs)
    if name is None:
        return ""
    hint = did_you_mean(name, signature.parameters)
    return f" There is no argument {name!r}.{hint}"


def _missing(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return the name of the first argument that is required and not given, or None."""
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return None
    return next(
        (
            name
            for name, parameter in signature.parameters.items()
            if name not in given
            and parameter.default is _P.empty
            and parameter.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        ),
        None,
    )


def arguments(value: object) -> Arguments:
    """Return ``(args, kwargs)`` of inputs that are a JSON object or array.

    In an object, the array under ``"*"`` has the positional arguments. Raises InvalidInputs.
    """
    if isinstance(value, list):
        return tuple(value), {}
    if not isinstance(value, dict):
        raise InvalidInputs("The inputs must be a JSON object of arguments, or an array.")
    if not isinstance(value.get(POSITIONAL, []), list):
        raise InvalidInputs(f"What stands under {POSITIONAL!r} must be an array.")
    return unbind(value)


def unbind(inputs: object) -> Arguments:
    """Return ``(args, kwargs)`` from the result of :func:`bind`. Raises CorruptData."""
    if not isinstance(inputs, dict):
        raise CorruptData("Inputs must be an object of arguments.")
    kwargs = dict(inputs)
    return tuple(kwargs.pop(POSITIONAL, ())), kwargs


# Adapting inputs of an older release to the current handler; and the hash of a signature.
#
# Nothing here writes: stored inputs stay as they were enqueued.

InputValues = dict[str, Any]
Adapter = Callable[[InputValues], InputValues]

# Hexadecimal digits of a fingerprint: enough to tell the few signatures of one Type apart.
DIGITS = 8


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
    found = unbind(inputs)
    why = misfit(signatures, *found)
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
            found = unbind(inputs)
        except (CorruptData, TypeError):
            return found, f"{why} ({adapter.__qualname__}() returned no arguments)"
        why = misfit(signatures, *found)
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
    placed = inputs.get(POSITIONAL, ())
    names = tuple(sorted(name for name in inputs if name != POSITIONAL))
    return len(placed) if isinstance(placed, list | tuple) else 0, names


# Sensitive inputs: the arguments of a handler that nobody is shown.
#
# They are stored as all inputs are, and the handler gets them. A mask stands for them wherever
# inputs are shown, and for their values in what an attempt writes: its log and its errors.

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
