"""Binding of inputs to the handler's signature.

Inputs are stored as an object of keyword arguments, which reads well in pages and APIs.
Arguments that can only be given by position are a list under ``"*"``.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ..exceptions import CorruptData, InvalidInputs
from ..words.hints import did_you_mean

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
