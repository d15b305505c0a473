"""The check of inputs against a contract: each problem by its path. enqueue() does not check."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf import settings
from ..exceptions import InvalidInputs, NotSerializable
from ..payload import binding, codec, tagged_json
from ..words import wording
from ..words.hints import did_you_mean
from .contract import Contract, schema_of

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType

# The maximum number of problems that are returned.
MOST = 20
_P = inspect.Parameter


class Problem(NamedTuple):
    """A part of the inputs that does not fit; ``path`` looks like ``order.lines[2].sku``."""

    path: str
    text: str


def check(task_type: TaskType, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Problem]:
    """Return all problems of the inputs, 20 at most; an empty list if they fit.

    ``inputs`` are values as ``enqueue()`` takes them: a mapping of arguments by name, with those
    by position under ``"*"``, or a sequence of arguments by position. Names and numbers of
    arguments are checked against the signature, values against the contract. A Type without a
    contract has no problems. Nothing is changed or written.
    """
    contract = schema_of(task_type)
    if contract is None:
        return []
    args, kwargs = (
        binding.unbind(dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    )
    found = []
    for problem in _problems(task_type, contract, args, kwargs):
        found.append(problem)
        if len(found) == MOST:
            break
    return found


def require(task_type: TaskType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidInputs, with all ``problems``, if the arguments do not fit the contract.

    Raises TooLarge before it compares anything with the contract.
    """
    if schema_of(task_type) is not None:
        bound = binding.as_called(args, kwargs)
        what = f"Inputs of {task_type.identifier!r}"
        with suppress(NotSerializable):  # enqueue() refuses it in its own words
            codec.encode(bound, limit=settings.MAX_INPUTS_SIZE, what=what)
    found = check(task_type, {**kwargs, binding.POSITIONAL: list(args)})
    if not found:
        return
    told = " ".join(
        problem.text if problem.text.startswith("Inputs of ") else f"{problem.path}: {problem.text}"
        for problem in found
    )
    if not told.startswith("Inputs of "):
        told = f"Inputs of {task_type.identifier!r} do not fit. {told}"
    error = InvalidInputs(told, argument=found[0].path or None)
    error.problems = tuple(found)
    raise error


def _problems(
    task_type: TaskType, contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Problem]:
    signature = task_type.signature
    yield from _misfits(task_type.identifier, signature, args, kwargs)
    for name, path, value in _given(signature, args, kwargs):
        found = _of_value(contract, name, path, value)
        if name in task_type.sensitive or path[0] in task_type.sensitive:
            # The texts, and the path below the argument, may quote its value.
            if next(found, None) is not None:
                yield Problem(shown(path), "It does not fit. It is sensitive: why is not shown.")
        else:
            yield from found


def _misfits(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield the problems of names and numbers of arguments; the first has the text of enqueue()."""
    try:
        binding.bind(name, signature, args, kwargs)
    except InvalidInputs as error:
        told = error.argument or ""
        yield Problem(told, str(error))
    else:
        return
    kinds = [each.kind for each in signature.parameters.values()]
    unknown = [
        each for each in kwargs if each not in signature.parameters and _P.VAR_KEYWORD not in kinds
    ]
    for each in unknown:
        if each != told:
            hint = did_you_mean(each, signature.parameters)
            yield Problem(each, f"There is no argument {each!r}.{hint}")
    by_position = list(signature.parameters)[: len(args)]
    for each, parameter in signature.parameters.items():
        is_needed = parameter.default is _P.empty and parameter.kind not in (
            _P.VAR_POSITIONAL,
            _P.VAR_KEYWORD,
        )
        if is_needed and each not in kwargs and each not in by_position and each != told:
            yield Problem(each, "It is required.")


def _given(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
    """Yield parameter, path and value of each argument that has a parameter."""
    parameters = signature.parameters.values()
    positional = [each for each in parameters if each.kind not in (_P.KEYWORD_ONLY, _P.VAR_KEYWORD)]
    for number, value in enumerate(args):
        taken = positional[min(number, len(positional) - 1)] if positional else None
        if taken is None:
            return
        if taken.kind is _P.VAR_POSITIONAL:
            yield taken.name, (taken.name, number - len(positional) + 1), value
        elif number < len(positional):
            yield taken.name, (taken.name,), value
    rest = next((each.name for each in parameters if each.kind is _P.VAR_KEYWORD), None)
    stars = (_P.VAR_POSITIONAL, _P.VAR_KEYWORD, _P.POSITIONAL_ONLY)
    for name, value in kwargs.items():
        known = signature.parameters.get(name)
        if known is not None and known.kind not in stars:
            yield name, (name,), value
        elif rest is not None:
            yield rest, (name,), value


def _of_value(
    contract: Contract, name: str, path: tuple[str | int, ...], value: Any
) -> Iterator[Problem]:
    from .problems import problems

    try:
        plain = json.loads(tagged_json.to_json(value))
    except NotSerializable:
        return  # enqueue() refuses it in its own words
    schema, is_wrong = contract.parameters[name], False
    for below, text in problems(contract.validators[name], contract.defs, plain):
        is_wrong = True
        yield Problem(shown((*path, *below)), text)
    is_default = "default" in schema and plain == schema["default"]
    if not is_wrong and not is_default and name in contract.adapters:
        yield from _of_validators(contract.adapters[name], path, value)


def _of_validators(adapter: Any, path: tuple[str | int, ...], value: Any) -> Iterator[Problem]:
    """Yield the problems that a schema cannot express: bounds of dates and decimals, validators.

    Pydantic validates the value; its converted value is not used.
    """
    from pydantic import ValidationError

    try:
        adapter.validate_python(value)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            text = wording.shorten(str(each["msg"]), 200)
            yield Problem(shown((*path, *each["loc"])), f"{text}.")
    # A validator of the project may raise anything.
    except Exception as error:
        text = wording.shorten(f"{type(error).__name__}: {error}", 200)
        yield Problem(shown(path), f"It cannot be checked: {text}.")


def shown(path: Sequence[str | int]) -> str:
    """Return a path as text: ``order.lines[2].sku``."""
    told = ""
    for part in path:
        name = wording.shorten(str(part), 100)
        told += f"[{name}]" if isinstance(part, int) else f".{name}" if told else name
    return wording.shorten(told, 1000)
