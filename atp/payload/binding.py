"""Bind arguments to a handler's signature, adapt stored inputs, and mask sensitive arguments.

Stored inputs are a JSON object of keyword arguments, which is easy to read on pages and in the API.
Arguments that can be given only by position are in a list under the key ``"*"``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, TypeGuard

from ..exceptions import CorruptData, InvalidInputs, InvalidType
from ..text import did_you_mean

POSITIONAL = "*"
_P = inspect.Parameter

# The number of hexadecimal digits of a fingerprint, enough to tell the few signatures of one Type
# apart.
DIGITS = 8
MASK = "[sensitive]"
# A shorter value is not masked in text, because words contain it by chance.
SHORTEST = 4

# The names of all parameters, and of the required ones.
Plain = tuple[dict[str, None], set[str]]
Signatures = tuple[inspect.Signature, Plain | None]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
InputValues = dict[str, Any]
Adapter = Callable[[InputValues], InputValues]


# Binding arguments to the handler's signature.


class Inputs(inspect.Signature):
    """A handler's signature without the context. No argument can have the name of the context."""

    context: str = ""

    def bind(self, /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        if self.context in kwargs:
            raise TypeError(f"{self.context!r} is the context, not an argument")
        return super().bind(*args, **kwargs)


def signature_of(handler: Callable[..., Any]) -> inspect.Signature:
    """Return the handler's signature without its first parameter, the context.

    Raises InvalidInputs if there is no such parameter.
    """
    signature = inspect.signature(handler)
    if not _takes_context(signature):
        # A decorator may take the context itself, and wrap a function that takes none.
        outer = inspect.signature(handler, follow_wrapped=False)
        if _takes_context(outer):
            context, *_ = outer.parameters.values()
            return _without_context(context, list(signature.parameters.values()), signature)
        raise InvalidInputs(
            f"{handler.__qualname__}() needs the context as its first parameter: "
            f"def {handler.__name__}(context, …)"
        )
    context, *parameters = signature.parameters.values()
    return _without_context(context, parameters, signature)


def _takes_context(signature: inspect.Signature) -> bool:
    first = next(iter(signature.parameters.values()), None)
    return first is not None and first.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)


def _without_context(
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
    """Bind arguments to a signature; return the arguments as a dict that can be stored.

    :func:`unbind` restores the arguments from the dict. ``name`` is the identifier of the Type, for
    error messages. ``plain``, the result of :func:`plain_parameters` for the signature, makes the
    binding faster. Raises InvalidInputs, with Python's own message, if the arguments do not fit.
    """
    if plain is not None and not args and plain[1] <= kwargs.keys() <= plain[0].keys():
        return {parameter: kwargs[parameter] for parameter in plain[0] if parameter in kwargs}
    for key in kwargs:
        if not isinstance(key, str):
            raise InvalidInputs(
                f"Inputs of {name!r}: {key!r} cannot be the name of an argument; names are text."
            )
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInputs(
            f"Inputs of {name!r} do not fit {name}{signature}: {error}."
            f"{_suggest_argument(signature, kwargs)}",
            argument=_find_unknown(signature, kwargs) or _find_missing(signature, args, kwargs),
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
        raise InvalidInputs(
            f"Inputs of {name!r}: {POSITIONAL!r} cannot be the name of an argument."
        )
    return {POSITIONAL: positional, **inputs} if positional else inputs


def as_called(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as a dict that can be stored.

    Unlike :func:`bind`, this never converts a positional argument to a keyword argument.
    """
    return {POSITIONAL: list(args), **kwargs} if args else dict(kwargs)


def _are_plain(inputs: object, plain: Plain | None) -> TypeGuard[dict[str, Any]]:
    """Return True if all inputs are arguments by name, and fit. This is the quick usual case."""
    if plain is None or not isinstance(inputs, dict):
        return False
    known, required = plain
    names = inputs.keys()
    return names == known.keys() or required <= names <= known.keys()


def why_incompatible(signatures: Signatures, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a clause that says why arguments do not fit a handler; "" if they fit.

    ``signatures`` is the result of :func:`signatures_of` for the handler. This checks only the
    number and the names of the arguments, not their values.
    """
    signature, plain = signatures
    if not args and _are_plain(kwargs, plain):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = _find_unknown(signature, kwargs)
        known = {name: value for name, value in kwargs.items() if name in signature.parameters}
        missing = _find_missing(signature, args, known)
        reasons = [f"argument {missing!r} is required"] if missing else []
        if unknown:
            hint = did_you_mean(unknown, signature.parameters).strip()
            reasons.append(f"there is no argument {unknown!r}{hint and f' (d{hint[1:]})'}")
        return "; ".join(reasons) or str(error)
    return ""


@cache
def signatures_of(handler: Callable[..., Any]) -> Signatures:
    """Return the signature of a handler, and the result of :func:`plain_parameters` for it."""
    signature = signature_of(handler)
    return signature, plain_parameters(signature)


def plain_parameters(signature: inspect.Signature) -> Plain | None:
    """Return the names of all parameters, and the names of the required ones.

    Returns None if the signature has a parameter that does not accept its argument by name.
    """
    parameters = signature.parameters
    if any(p.kind not in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY) for p in parameters.values()):
        return None
    if POSITIONAL in parameters:
        return None
    required = {name for name, p in parameters.items() if p.default is _P.empty}
    return dict.fromkeys(parameters), required


def _find_unknown(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str | None:
    """Return the name of the first keyword argument that a signature does not accept, or None."""
    if any(p.kind is _P.VAR_KEYWORD for p in signature.parameters.values()):
        return None
    return next((name for name in kwargs if name not in signature.parameters), None)


def _suggest_argument(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str:
    name = _find_unknown(signature, kwargs)
    if name is None:
        return ""
    hint = did_you_mean(name, signature.parameters)
    return f" There is no argument {name!r}.{hint}"


def _find_missing(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return the name of the first required argument that is missing, or None."""
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


def split_arguments(value: object) -> Arguments:
    """Return inputs that are a JSON object or array as ``(args, kwargs)``. Raises InvalidInputs.

    In an object, the array under the key ``"*"`` has the positional arguments.
    """
    if isinstance(value, list):
        return tuple(value), {}
    if not isinstance(value, dict):
        raise InvalidInputs("The inputs must be a JSON object of arguments, or an array.")
    if not isinstance(value.get(POSITIONAL, []), list):
        raise InvalidInputs(f"The value of {POSITIONAL!r} must be an array.")
    return unbind(value)


def unbind(inputs: object) -> Arguments:
    """Return stored inputs, the result of :func:`bind`, as ``(args, kwargs)``.

    Raises CorruptData.
    """
    if not isinstance(inputs, dict):
        raise CorruptData("Inputs must be an object of arguments.")
    kwargs = dict(inputs)
    return tuple(kwargs.pop(POSITIONAL, ())), kwargs


# Adapting inputs from an older release to the current handler; the hash of a signature.
#
# This code does not write anything, so stored inputs stay as they were enqueued.


def check_adapter(identifier: str, function: object) -> None:
    """Raise InvalidType unless ``function`` can be an adapter, that is, can take one dict."""
    label = f"{identifier}.adapt"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise InvalidType(f"{label}: an adapter must be a plain function, not {function!r}.")
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise InvalidType(
            f"{label}: {function.__qualname__}() must take one argument, the dict of inputs: "
            f"{error}."
        ) from None


def adapt_arguments(
    signatures: Signatures,
    adapters: Sequence[Adapter],
    inputs: object,
    sensitive: Collection[str] = (),
) -> tuple[Arguments, str]:
    """Adapt stored inputs to a handler.

    As long as the inputs do not fit the handler, this calls the adapters in order, each with the
    result of the previous one. An adapter can change the dict ``inputs`` in place. Returns
    ``(args, kwargs)``, and a clause that says why these do not fit, or "" if they fit. The clause
    does not quote the values of the arguments that ``sensitive`` names. Raises CorruptData if
    ``inputs`` is not a dict of arguments.
    """
    if _are_plain(inputs, signatures[1]):
        return ((), inputs), ""
    found = unbind(inputs)
    why = why_incompatible(signatures, *found)
    if not why:
        return found, ""
    texts = sensitive_texts(inputs, sensitive)
    for adapter in adapters:
        if not why:
            break
        try:
            inputs = adapter(inputs)  # type: ignore[arg-type]
        except Exception as error:
            message = mask_texts(f"{type(error).__name__}: {error}", texts)
            return found, f"{why} ({adapter.__qualname__}() raised {message})"
        if not isinstance(inputs, dict) or not all(isinstance(name, str) for name in inputs):
            return found, f"{why} ({adapter.__qualname__}() returned {type(inputs).__name__})"
        try:
            found = unbind(inputs)
        except (CorruptData, TypeError):
            return found, f"{why} ({adapter.__qualname__}() returned no arguments)"
        why = why_incompatible(signatures, *found)
    return found, why


def fingerprint(signature: inspect.Signature, serializer: str, adapters: Sequence[Adapter]) -> str:
    """Return a short hash of the inputs that a handler accepts.

    The hash covers the names of the parameters, which of them are required, the serializer, and
    the source of the adapters. The order of the parameters matters only for positional-only ones.
    """
    parameters = signature.parameters.values()
    named = sorted(_describe_parameter(p) for p in parameters if p.kind is not _P.POSITIONAL_ONLY)
    placed = [_describe_parameter(p) for p in parameters if p.kind is _P.POSITIONAL_ONLY]
    facts = [placed, named, serializer, [_adapter_source(adapter) for adapter in adapters]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:DIGITS]


def _describe_parameter(parameter: inspect.Parameter) -> tuple[str, str, bool]:
    kind = parameter.kind.name if parameter.kind in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD) else ""
    return parameter.name, kind, parameter.default is _P.empty


def _adapter_source(adapter: Adapter) -> str:
    try:
        return inspect.getsource(adapter)
    except OSError:  # from a shell, say
        return adapter.__code__.co_code.hex()


def inputs_shape(inputs: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Return the number of positional arguments in stored inputs, and the other arguments' names.

    The names are sorted.
    """
    placed = inputs.get(POSITIONAL, ())
    names = tuple(sorted(name for name in inputs if name != POSITIONAL))
    return len(placed) if isinstance(placed, list | tuple) else 0, names


# Masking the sensitive arguments of a handler.
#
# Sensitive arguments are stored like all inputs, and the handler gets them. A mask replaces them
# wherever ATP displays inputs, and replaces their values in the log and the errors of an attempt.


def mask_inputs(inputs: Any, names: Collection[str]) -> Any:
    """Return stored inputs after replacing each sensitive argument by a mask.

    ``names`` are the names of the sensitive arguments. Stored inputs do not show which positional
    arguments are sensitive, so each positional argument gets a mask.
    """
    if not names:
        return inputs
    if not isinstance(inputs, Mapping):
        return MASK
    return {name: _mask_argument(name, value, names) for name, value in inputs.items()}


def _mask_argument(name: str, value: Any, names: Collection[str]) -> Any:
    if name == POSITIONAL:
        return [MASK] * len(value) if isinstance(value, list) else MASK
    return MASK if name in names else value


def mask_json(text: str, names: Collection[str]) -> str:
    """Return the JSON text of stored inputs after masking the arguments in ``names``.

    If the text is not valid JSON, this returns only a mask.
    """
    if not names:
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return json.dumps(mask_inputs(found, names), ensure_ascii=False)


def find_mask(inputs: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the name of a sensitive argument whose value is the mask; None if there is none."""
    by_position = inputs.get(POSITIONAL, ()) if names else ()
    if any(_is_mask(value) for value in by_position):
        return POSITIONAL
    return next((name for name in names if _is_mask(inputs.get(name))), None)


def _is_mask(value: Any) -> bool:
    return isinstance(value, str) and value == MASK


def sensitive_texts(inputs: Any, names: Collection[str]) -> tuple[str, ...]:
    """Return the values of the sensitive arguments as texts, for :func:`mask_texts`.

    The longest text comes first.
    """
    if not names or not isinstance(inputs, Mapping):
        return ()
    chosen = [value for name, value in inputs.items() if name in names or name == POSITIONAL]
    found = {text for value in _iterate_leaves(chosen) for text in _text_forms(value)}
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True))


def _iterate_leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            waiting += each
        else:
            yield each


def _text_forms(value: Any) -> tuple[str, ...]:
    """Return the ways in which a value can appear in text: plain, or escaped by Python or JSON."""
    if isinstance(value, str):
        return value, repr(value)[1:-1], json.dumps(value)[1:-1]
    if isinstance(value, bytes):
        return value.decode(errors="replace"), repr(value)[2:-1]
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (str(value),)
    return ()


def mask_texts(text: str, texts: Iterable[str]) -> str:
    """Return text after replacing each of the sensitive ``texts`` by a mask."""
    for each in texts:
        text = text.replace(each, MASK)
    return text
