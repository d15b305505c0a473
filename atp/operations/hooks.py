"""Declare hooks. When an Instance ends, ATP enqueues an Instance of the Type that is the hook.

Code declares a hook for one Type, for one enqueue, or for all Types that match a pattern.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import ATPError, InvalidOption, InvalidType
from ..options import is_pattern, own_options
from ..payload import binding, codec
from ..store.values import HOOK_FACTS, HOOK_STATES, MORE_HOOK_FACTS, Hook
from ..text import as_timedelta, did_you_mean
from .registry import HookSpec, declared_hooks, registry

if TYPE_CHECKING:
    from .registry import Declaration


T = TypeVar("T", bound="Declaration")

HOOK_PARAMETERS = tuple(HOOK_STATES)
# A Type, or a pair of a Type and a mapping of inputs, or a list of these.
HookLike = Any

# Options that a hook cannot have, because a hook is always a new Instance that is due when another
# Instance ends.
_REFUSED = ("identifier", "run_after", "start_before", "unique", "created_by", *HOOK_PARAMETERS)


def hooks_of(
    label: str, on: str, value: HookLike, error: type[ATPError] = InvalidType
) -> tuple[HookSpec, ...]:
    """Return the hooks that a parameter declares, as HookSpecs.

    ``on`` is the name of the parameter, "on_finished" or "on_failed", and ``value`` is a hook or a
    list of hooks. ``label`` names the declaration in error messages. Raises ``error``.
    """
    entries = value if isinstance(value, (list, set, frozenset)) else [value]
    try:
        return tuple(dict.fromkeys(_make_spec(on, entry) for entry in entries))
    except ATPError as problem:
        raise error(f"{label}: {on}: {problem}") from None


def read_hook_parameters(label: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Type's parameters after converting its hooks to HookSpecs. Raises InvalidType."""
    return {
        name: hooks_of(label, name, value) if name in HOOK_PARAMETERS else value
        for name, value in parameters.items()
    }


def read_hook_options(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an enqueue's options after converting its hooks to HookSpecs. Raises InvalidOption."""
    return {
        name: hooks_of("using()", name, value, InvalidOption)
        if name in HOOK_PARAMETERS and value is not None
        else value
        for name, value in changes.items()
    }


def on_finished(*patterns: str) -> Callable[[T], T]:
    """Make the decorated Type a hook that runs when an Instance of a matching Type has FINISHED.

    Each pattern, such as "dem.*", matches identifiers of Types. In a pattern, ``*`` stands for any
    characters, ``?`` for one character, and ``[ab]`` for an "a" or a "b". A pattern never matches
    Types that are hooks themselves. A pattern matches a tailer or one of ATP's own Types only if it
    is the whole identifier. Raises InvalidType.
    """
    return _decorator("on_finished", patterns)


def on_failed(*patterns: str) -> Callable[[T], T]:
    """Make the decorated Type a hook that runs when an Instance of a matching Type has FAILED.

    See :func:`on_finished`. Raises InvalidType.
    """
    return _decorator("on_failed", patterns)


def _check_pattern(label: str, pattern: Any) -> None:
    """Raise InvalidType unless ``pattern`` is a pattern for identifiers of Types."""
    if not is_pattern(pattern):
        raise InvalidType(
            f"{label} takes patterns for identifiers of Types, such as 'dem.*', not {pattern!r}."
        )


def _decorator(on: str, patterns: tuple[str, ...]) -> Callable[[T], T]:
    label = f"@{on}"
    if not patterns:
        raise InvalidType(f"{label}() needs at least one pattern, as in {label}('dem.*').")
    for pattern in patterns:
        _check_pattern(label, pattern)

    def decorate(type: T) -> T:
        try:
            spec = _make_spec(on, type)
        except ATPError as problem:
            raise InvalidType(f"{label}: {problem}") from None
        for pattern in patterns:
            declared_hooks.add(pattern, spec)
        return type

    return decorate


def _make_spec(on: str, value: Any) -> HookSpec:
    type, inputs = value if isinstance(value, tuple) and len(value) == 2 else (value, {})
    if getattr(type, "handler", None) is None:
        advice = " Give the Type itself, not its name." if isinstance(type, str) else ""
        raise InvalidType(
            f"must be a Type that @task_type has declared, or a Type and a mapping of inputs, "
            f"not {type!r}.{advice}"
        )
    _check_type(type)
    options = type.options
    return HookSpec(
        Hook(
            on=on,
            type=type.identifier,
            inputs=_encode_inputs(type, inputs),
            priority=options.priority,
            collection=options.collection,
            own=own_options(timeout=as_timedelta(options.timeout), max_retries=options.max_retries)
            or "",
            more=" ".join(_more_facts(type, inputs)),
        ),
        type,
    )


def _check_type(type: Declaration) -> None:
    name = type.identifier
    if type.on_finished or type.on_failed:
        raise InvalidType(f"{name!r} cannot be a hook, because it has hooks itself.")
    for option in _REFUSED:
        if getattr(type.options, option):
            raise InvalidType(
                f"{name!r} is given with {option}, which a hook cannot have: a hook is always a "
                "new Instance, and is due when the other Instance ends."
            )
    if type.options.existing != "raise":
        raise InvalidType(
            f"{name!r} is given with existing, which a hook cannot have: a hook is always a new "
            "Instance."
        )
    if type.serializer != codec.JSON or type.as_called:
        kind = "a task of django.tasks" if type.as_called else f"of serializer {type.serializer!r}"
        raise InvalidType(
            f"{name!r} is {kind}, but a hook must be a Type of @task_type with its inputs in JSON."
        )


def _encode_inputs(type: Declaration, inputs: Any) -> str:
    """Return the inputs that a hook's declaration gives it, as JSON; "" if there are none.

    Raises ATPError if the inputs do not fit the hook's handler.
    """
    if not isinstance(inputs, Mapping):
        raise InvalidType(f"the inputs of {type.identifier!r} must be a mapping, not {inputs!r}.")
    for name in inputs:
        if name in HOOK_FACTS:
            raise InvalidType(
                f"{name!r} is given to every hook by ATP, so a declaration cannot set it."
            )
    signature, accepted = type.signatures
    facts = dict.fromkeys((*HOOK_FACTS, *_more_facts(type, inputs)), "")
    try:
        binding.bind(type.identifier, signature, (), {**inputs, **facts}, accepted)
    except ATPError as problem:
        arguments = ", ".join(f"{name}=…" for name in (*inputs, *facts))
        raise InvalidType(
            f"ATP would call this hook as handler(context, {arguments}). {problem}"
        ) from None
    text = codec.encode(dict(inputs), what=f"Inputs of {type.identifier!r}").data
    return text if json.loads(text) else ""


def _more_facts(type: Declaration, inputs: Mapping[str, Any]) -> list[str]:
    """Return the names of the optional facts (MORE) that a hook's handler has parameters for.

    Facts that the declaration sets as ``inputs`` are left out.
    """
    parameters = type.signatures[0].parameters
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [
        name
        for name in MORE_HOOK_FACTS
        if name in parameters and parameters[name].kind in by_name and name not in inputs
    ]


def describe_unmatched() -> list[str]:
    """Return a list with a sentence about each hook pattern that matches no declared Type."""
    names = [type.identifier for type in registry]
    problems = (
        f"{spec.setting or f'{spec.hook.on} of {spec.hook.type!r}'}: no Type matches {pattern!r}."
        + (_describe_left_out(left_out) if left_out else did_you_mean(pattern, names))
        for pattern, spec, left_out in declared_hooks.unmatched()
    )
    # A setting can use one pattern for two hooks.
    return list(dict.fromkeys(problems))


def _describe_left_out(names: list[str]) -> str:
    """Return a sentence about Types that a pattern would match if they were not left out."""
    return (
        f" A pattern leaves out hooks, tailers and ATP's own Types, such as {names[0]!r}. To match "
        "a tailer, give its whole identifier."
    )
