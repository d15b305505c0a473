"""Declare hooks: ``on_finished`` and ``on_failed``, for a Type, for one Instance, or by pattern."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar

from .. import options as own
from ..exceptions import ATPError, InvalidOption, InvalidType
from ..options import is_pattern
from ..payload import binding, codec
from ..store.values.hooks import FACTS, MORE, STATES, Hook
from ..text import did_you_mean, seconds
from .registry import HookSpec, declared_hooks, registry

if TYPE_CHECKING:
    from .registry import Declaration


T = TypeVar("T", bound="Declaration")

NAMES = tuple(STATES)
# A Type, or a pair of a Type and its own inputs, or a list of these.
HookLike = Any

# Options that a hook cannot have: it is always a new Instance, and due when the other one ends.
_REFUSED = ("identifier", "run_after", "start_before", "unique", "created_by", *NAMES)


def hooks_of(
    told: str, on: str, given: HookLike, error: type[ATPError] = InvalidType
) -> tuple[HookSpec, ...]:
    """Return the hooks that a value of ``on_finished`` or ``on_failed`` names.

    ``told`` names the declaration in error messages. Raises ``error``.
    """
    entries = given if isinstance(given, (list, set, frozenset)) else [given]
    try:
        return tuple(dict.fromkeys(_spec(on, entry) for entry in entries))
    except ATPError as problem:
        raise error(f"{told}: {on}: {problem}") from None


def plain(told: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a Type, with hooks as HookSpecs. Raises InvalidType."""
    return {
        name: hooks_of(told, name, value) if name in NAMES else value
        for name, value in parameters.items()
    }


def of_options(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of an enqueue, with hooks as HookSpecs. Raises InvalidOption."""
    return {
        name: hooks_of("using()", name, value, InvalidOption)
        if name in NAMES and value is not None
        else value
        for name, value in changes.items()
    }


def on_finished(*patterns: str) -> Callable[[T], T]:
    """Make the decorated Type a hook that runs when an Instance of a matching Type has FINISHED.

    ``patterns`` match identifiers of Types, as "dem.*": ``*`` stands for any characters, ``?`` for
    one, and ``[ab]`` for one of these. Types that are hooks themselves are left out; so are tailers
    and the Types of ATP, unless the pattern is the whole identifier. Raises InvalidType.
    """
    return _matching("on_finished", patterns)


def on_failed(*patterns: str) -> Callable[[T], T]:
    """Make the decorated Type a hook that runs when an Instance of a matching Type has FAILED.

    See :func:`on_finished`. Raises InvalidType.
    """
    return _matching("on_failed", patterns)


def check_pattern(told: str, pattern: Any) -> None:
    """Raise InvalidType unless ``pattern`` is a pattern of identifiers of Types."""
    if not is_pattern(pattern):
        raise InvalidType(
            f"{told} takes patterns of the names of Types, as 'dem.*', not {pattern!r}."
        )


def _matching(on: str, patterns: tuple[str, ...]) -> Callable[[T], T]:
    told = f"@{on}"
    if not patterns:
        raise InvalidType(f"{told}() names no Type: give a pattern, as in {told}('dem.*').")
    for pattern in patterns:
        check_pattern(told, pattern)

    def decorate(type: T) -> T:
        try:
            spec = _spec(on, type)
        except ATPError as problem:
            raise InvalidType(f"{told}: {problem}") from None
        for pattern in patterns:
            declared_hooks.add(pattern, spec)
        return type

    return decorate


def _spec(on: str, given: Any) -> HookSpec:
    type, inputs = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
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
            inputs=_inputs(type, inputs),
            priority=options.priority,
            collection=options.collection,
            own=own.own_options(timeout=seconds(options.timeout), max_retries=options.max_retries)
            or "",
            more=" ".join(_more(type, inputs)),
        ),
        type,
    )


def _check_type(type: Declaration) -> None:
    name = type.identifier
    if type.on_finished or type.on_failed:
        raise InvalidType(f"{name!r} has hooks itself, and hooks have none.")
    for option in _REFUSED:
        if getattr(type.options, option):
            raise InvalidType(
                f"{name!r} is given with {option}: a hook is always new, and due at the end."
            )
    if type.options.existing != "raise":
        raise InvalidType(f"{name!r} is given with existing: a hook is always new.")
    if type.serializer != codec.JSON or type.as_called:
        kind = "a task of django.tasks" if type.as_called else f"of serializer {type.serializer!r}"
        raise InvalidType(
            f"{name!r} is {kind}: a hook is a Type of @task_type, with its inputs in JSON."
        )


def _inputs(type: Declaration, given: Any) -> str:
    """Return a hook's own inputs as JSON, "" if it has none. Raises ATPError if they misfit."""
    if not isinstance(given, Mapping):
        raise InvalidType(f"the inputs of {type.identifier!r} must be a mapping, not {given!r}.")
    for name in given:
        if name in FACTS:
            raise InvalidType(f"{name!r} is given to every hook: it cannot be among its inputs.")
    signature, accepted = type.signatures
    facts = dict.fromkeys((*FACTS, *_more(type, given)), "")
    try:
        binding.bind(type.identifier, signature, (), {**given, **facts}, accepted)
    except ATPError as problem:
        called = ", ".join(f"{name}=…" for name in (*given, *facts))
        raise InvalidType(f"a hook is called as handler(context, {called}). {problem}") from None
    text = codec.encode(dict(given), what=f"Inputs of {type.identifier!r}").data
    return text if json.loads(text) else ""


def _more(type: Declaration, given: Mapping[str, Any]) -> list[str]:
    """Return the names in MORE that the handler has parameters for, but its own inputs."""
    parameters = type.signatures[0].parameters
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [
        name
        for name in MORE
        if name in parameters and parameters[name].kind in by_name and name not in given
    ]


def unmatched() -> list[str]:
    """Return a sentence for each pattern that is for no declared Type."""
    names = [type.identifier for type in registry]
    problems = (
        f"{spec.setting or f'{spec.hook.on} of {spec.hook.type!r}'}: no Type matches {pattern!r}."
        + (_told_left_out(left_out) if left_out else did_you_mean(pattern, names))
        for pattern, spec, left_out in declared_hooks.unmatched()
    )
    # A pattern of a setting may stand for two hooks.
    return list(dict.fromkeys(problems))


def _told_left_out(names: list[str]) -> str:
    """Return a sentence about Types that match, but that a pattern leaves out."""
    return (
        f" A pattern leaves out hooks, tailers and the Types of ATP, as {names[0]!r}; to be told "
        "of a tailer, write its whole identifier."
    )
