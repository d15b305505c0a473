"""Inputs and the handler's signature.

Inputs are kept as an object of keyword arguments, so that they read well in
pages and APIs. What can only be given by position stands under ``"*"``.
"""

import inspect

from .conf import did_you_mean
from .exceptions import CorruptData, InvalidInputs

POSITIONAL = "*"
_P = inspect.Parameter


def signature_of(handler):
    """Return the handler's signature without its first parameter, the context.

    Raises InvalidInputs if there is no such parameter.
    """
    signature = inspect.signature(handler)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        _P.POSITIONAL_ONLY,
        _P.POSITIONAL_OR_KEYWORD,
    ):
        raise InvalidInputs(
            f"{handler.__qualname__}() needs a first parameter, the context: "
            f"def {handler.__name__}(context, …)"
        )
    return signature.replace(parameters=parameters[1:])


def bind(name, signature, args, kwargs):
    """Return the arguments as a dict that :func:`unbind` gives back.

    Raises InvalidInputs, with the words of a failing call, if they do not fit.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInputs(
            f"Inputs of {name!r} do not fit {name}{signature}: {error}."
            f"{_unknown(signature, kwargs)}"
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


def _unknown(signature, kwargs):
    """Name the first argument that the signature does not have, and the closest that it has."""
    if any(p.kind is _P.VAR_KEYWORD for p in signature.parameters.values()):
        return ""
    for name in kwargs:
        if name not in signature.parameters:
            hint = did_you_mean(name, signature.parameters)
            return f" There is no argument {name!r}.{hint}"
    return ""


def unbind(inputs):
    """Return ``(args, kwargs)`` of what :func:`bind` returned. Raises CorruptData."""
    if not isinstance(inputs, dict):
        raise CorruptData("Inputs must be an object of arguments.")
    kwargs = dict(inputs)
    return tuple(kwargs.pop(POSITIONAL, ())), kwargs
