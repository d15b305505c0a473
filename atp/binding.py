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


def bind(name, signature, args, kwargs, plain=None):
    """Return the arguments as a dict that :func:`unbind` gives back.

    ``plain`` is what :func:`plain_of` said of the signature, to be quicker. Raises
    InvalidInputs, with the words of a failing call, if they do not fit.
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


def plain_of(signature):
    """Return the names of all parameters and of those required, if each can be given by name.

    None if one cannot.
    """
    parameters = signature.parameters
    if any(p.kind not in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY) for p in parameters.values()):
        return None
    if POSITIONAL in parameters:
        return None
    required = {name for name, p in parameters.items() if p.default is _P.empty}
    return dict.fromkeys(parameters), required


def _unknown(signature, kwargs):
    """Return the name of the first argument that the signature does not have, or None."""
    if any(p.kind is _P.VAR_KEYWORD for p in signature.parameters.values()):
        return None
    return next((name for name in kwargs if name not in signature.parameters), None)


def _hint(signature, kwargs):
    name = _unknown(signature, kwargs)
    if name is None:
        return ""
    hint = did_you_mean(name, signature.parameters)
    return f" There is no argument {name!r}.{hint}"


def _missing(signature, args, kwargs):
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


def arguments(value):
    """Return ``(args, kwargs)`` of inputs as JSON gives them: an object, or an array.

    In an object, what stands under ``"*"`` is given by position. Raises InvalidInputs.
    """
    if isinstance(value, list):
        return tuple(value), {}
    if not isinstance(value, dict):
        raise InvalidInputs("The inputs must be a JSON object of arguments, or an array.")
    if not isinstance(value.get(POSITIONAL, []), list):
        raise InvalidInputs(f"What stands under {POSITIONAL!r} must be an array.")
    return unbind(value)


def unbind(inputs):
    """Return ``(args, kwargs)`` of what :func:`bind` returned. Raises CorruptData."""
    if not isinstance(inputs, dict):
        raise CorruptData("Inputs must be an object of arguments.")
    kwargs = dict(inputs)
    return tuple(kwargs.pop(POSITIONAL, ())), kwargs
