"""Contracts: JSON Schemas for a Type, made from the annotations of its handler.

This module also checks inputs against a contract, and describes a handler's parameters in words.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf import settings
from ..exceptions import InvalidInputs, NotSerializable
from ..payload import binding, codec
from ..payload import json as tagged_json
from ..payload.references import Reference
from ..text import describe_schema, did_you_mean, shorten

if TYPE_CHECKING:
    from ..operations.registry import Declaration


Schema = dict[str, Any]

NEEDED = "Contracts need pydantic and jsonschema, which ATP's extra [contracts] installs."
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The key of the return value where annotations and schemas are stored by parameter name.
RETURNED = "return"
# The maximum number of problems that a check returns.
MOST = 20
# An alias, because this module has its own class Parameter.
_P = inspect.Parameter


# Annotations: each is resolved separately, so that an unreadable one does not spoil the others.


def annotations_of(
    handler: Callable[..., Any], signature: inspect.Signature
) -> Iterator[tuple[str, Any]]:
    """Yield the name and annotation of each parameter except the context.

    The annotation of the return value has the name RETURNED. If an annotation is text that cannot
    be evaluated, such as a name imported only for type checkers, yield the exception instead.
    """
    annotations = {name: each.annotation for name, each in signature.parameters.items()}
    annotations[RETURNED] = signature.return_annotation
    names = getattr(inspect.unwrap(handler), "__globals__", {})
    for name, annotation in annotations.items():
        if annotation is not _P.empty:
            yield name, _resolve_annotation(annotation, names)


def _resolve_annotation(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation with its text evaluated, or the exception that the evaluation raises."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    # Code in the text of an annotation may raise anything.
    except Exception as error:
        return error


# The contract: JSON Schema of inputs and outputs, made once for each Type and process.


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The JSON Schemas of a Type's inputs and outputs, in the form that the queue stores.

    ``parameters`` maps each parameter's name to its schema. For ``*more`` and ``**more`` that is
    the schema of a single value. ``defs`` contains the definitions to which these schemas refer.
    ``adapters`` maps names to pydantic's TypeAdapters. ``hints`` maps the name of each parameter
    whose annotation could not be used to the reason. Such a parameter accepts any JSON.
    """

    inputs: Schema
    outputs: Schema
    parameters: dict[str, Schema]
    defs: dict[str, Schema]
    adapters: dict[str, Any]
    hints: dict[str, str]

    @cached_property
    def validators(self) -> dict[str, Any]:
        """The jsonschema validator of each parameter, by name."""
        from .schema import json_validator

        return {name: json_validator(each, self.defs) for name, each in self.parameters.items()}


@cache
def is_available() -> bool:
    """Return True if pydantic and jsonschema are installed."""
    try:
        return all(find_spec(name) is not None for name in ("pydantic", "jsonschema"))
    except ValueError:  # sys.modules has None for the name
        return False


def schema_of(task_type: Declaration) -> Contract | None:
    """Return the contract of a Type, or None if it stores pickles or pydantic is not installed."""
    if task_type.serializer != codec.JSON or not is_available():
        return None
    return _make_contract(task_type.handler)


def document_of(task_type: Declaration | None) -> dict[str, Schema | None]:
    """Return a Type's schemas under the keys "inputs_schema" and "outputs_schema".

    Both are None for a Type without a contract. ``task_type`` is None for a Type that this process
    does not declare, which therefore has no contract.
    """
    contract = None if task_type is None else schema_of(task_type)
    return {
        "inputs_schema": None if contract is None else contract.inputs,
        "outputs_schema": None if contract is None else contract.outputs,
    }


@cache
def _make_contract(handler: Callable[..., Any]) -> Contract:
    signature, _ = binding.signatures_of(handler)
    adapters, hints = _make_adapters(handler, signature)
    schemas, defs = _make_schemas(adapters)
    texts = parameter_texts(handler)
    parameters = {}
    for name, parameter in signature.parameters.items():
        schema = _add_default(schemas.get(name, {}), parameter.default, defs)
        if name in texts:
            schema = {**schema, "description": texts[name]}
        parameters[name] = schema
    inputs = _make_inputs_schema(signature, parameters, inspect.getdoc(handler))
    return Contract(
        inputs=_make_document(inputs, defs),
        outputs=_make_document(schemas.get(RETURNED, {}), defs),
        parameters=parameters,
        defs=defs,
        adapters=adapters,
        hints=hints,
    )


def _make_adapters(
    handler: Callable[..., Any], signature: inspect.Signature
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a pydantic adapter or an error text for each annotation, as two dicts by name."""
    from pydantic import TypeAdapter

    from .schema import TaggedSchema

    adapters: dict[str, Any] = {}
    hints = {}
    for name, annotation in annotations_of(handler, signature):
        try:
            if isinstance(annotation, Exception):
                raise annotation
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                adapter: Any = TypeAdapter(annotation)
                adapter.json_schema(schema_generator=TaggedSchema)
                adapter.validator = make_validator(adapter)
        # A project's class may define its own schema, with code that may raise anything.
        except Exception as error:
            [reason, *_] = str(error).splitlines() or [""]
            hints[name] = f"{type(error).__name__}: {reason.partition('. ')[0]}"
        else:
            adapters[name] = adapter
    return adapters, hints


def _make_schemas(adapters: dict[str, Any]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Return the adapters' schemas by name, and the definitions that they share by name."""
    from pydantic import TypeAdapter

    from .schema import TaggedSchema

    inputs: Any = [(name, "validation", adapter) for name, adapter in adapters.items()]
    with warnings.catch_warnings():
        # Pydantic warns of defaults that JSON cannot represent, and omits them.
        warnings.simplefilter("ignore")
        schemas, shared = TypeAdapter.json_schemas(inputs, schema_generator=TaggedSchema)
    return {name: schema for (name, _), schema in schemas.items()}, dict(shared.get("$defs", {}))


def _add_default(schema: Schema, default: Any, defs: dict[str, Schema]) -> Schema:
    """Return a schema that states a default and always accepts it, even None for an int."""
    if default is _P.empty:
        return schema
    try:
        plain = json.loads(tagged_json.to_json(default))
    except NotSerializable:
        return schema
    from .schema import json_validator

    if not json_validator(schema, defs).is_valid(plain):
        schema = {"anyOf": [schema, {"const": plain}]}
    return {**schema, "default": plain}


def _make_inputs_schema(
    signature: inspect.Signature, parameters: dict[str, Schema], doc: str | None
) -> Schema:
    """Return the schema of stored inputs, which hold positional arguments under the key "*"."""
    kinds = {name: each.kind for name, each in signature.parameters.items()}
    takes_more = _P.VAR_POSITIONAL in kinds.values()
    properties, required, first = {}, [], []
    rest: Schema | bool = False
    by_position: Schema | bool = False
    needed = 0
    for name, schema in parameters.items():
        is_needed = signature.parameters[name].default is _P.empty
        if kinds[name] is _P.VAR_KEYWORD:
            rest = schema
            continue
        if kinds[name] is _P.VAR_POSITIONAL:
            by_position = schema
            continue
        if kinds[name] is not _P.POSITIONAL_ONLY:
            properties[name] = schema
        if kinds[name] is not _P.KEYWORD_ONLY:
            first.append(schema)
        if kinds[name] is _P.POSITIONAL_ONLY:
            needed += is_needed
        elif is_needed and (kinds[name] is _P.KEYWORD_ONLY or not takes_more):
            required.append(name)
    document: Schema = {"type": "object", "properties": properties, "required": required}
    if takes_more or _P.POSITIONAL_ONLY in kinds.values():
        properties[binding.POSITIONAL] = {
            "type": "array",
            "prefixItems": first,
            "items": by_position,
            "minItems": needed,
        }
        if needed:
            required.append(binding.POSITIONAL)
    document["additionalProperties"] = rest
    return {"description": doc, **document} if doc else document


def _make_document(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Return a self-contained schema that includes only the definitions it uses."""
    used: dict[str, Schema] = {}
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            if name in defs and name not in used:
                used[name] = defs[name]
                waiting.append(defs[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    document = {"$schema": DIALECT, **schema}
    return {**document, "$defs": dict(sorted(used.items()))} if used else document


# Checking inputs against a contract, which enqueue() itself does not do.


class Problem(NamedTuple):
    """An invalid part of the inputs. An example of ``path`` is ``order.lines[2].sku``."""

    path: str
    text: str


def check(task_type: Declaration, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Problem]:
    """Return at most 20 problems with the inputs, or an empty list if the inputs are valid.

    ``inputs`` contains values as ``enqueue()`` takes them. A mapping holds arguments by name, and
    positional ones under the key ``"*"``. A sequence holds positional arguments only. Names and
    numbers of arguments are checked against the handler's signature, and values against the
    contract. A Type without a contract has no problems. This function changes and writes nothing.
    """
    contract = schema_of(task_type)
    if contract is None:
        return []
    args, kwargs = (
        binding.unbind(dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    )
    return list(islice(_find_problems(task_type, contract, args, kwargs), MOST))


def require(task_type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidInputs, with all its ``problems``, if the arguments do not fit the contract.

    Before that check, raises TooLarge if the arguments exceed MAX_INPUTS_SIZE.
    """
    if schema_of(task_type) is not None:
        bound = binding.as_called(args, kwargs)
        what = f"Inputs of {task_type.identifier!r}"
        with suppress(NotSerializable):  # enqueue() reports this with its own message
            codec.encode(bound, limit=settings.MAX_INPUTS_SIZE, what=what)
    problems = check(task_type, {**kwargs, binding.POSITIONAL: list(args)})
    if not problems:
        return
    message = " ".join(
        problem.text if problem.text.startswith("Inputs of ") else f"{problem.path}: {problem.text}"
        for problem in problems
    )
    if not message.startswith("Inputs of "):
        message = f"Inputs of {task_type.identifier!r} do not fit. {message}"
    error = InvalidInputs(message, argument=problems[0].path or None)
    error.problems = tuple(problems)
    raise error


def _find_problems(
    task_type: Declaration, contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Problem]:
    signature = task_type.signature
    yield from _find_signature_problems(task_type.identifier, signature, args, kwargs)
    for name, path, value in _match_arguments(signature, args, kwargs):
        problems = _check_value(contract, name, path, value)
        if name in task_type.sensitive or path[0] in task_type.sensitive:
            # The texts, and the path below the argument, may quote its value.
            if next(problems, None) is not None:
                text = "The value does not fit. The reason is hidden, as the value is sensitive."
                yield Problem(format_path(path), text)
        else:
            yield from problems


def _find_signature_problems(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield problems with the names and number of arguments, first the one enqueue() reports."""
    try:
        binding.bind(name, signature, args, kwargs)
    except InvalidInputs as error:
        first = error.argument or ""
        yield Problem(first, str(error))
    else:
        return
    kinds = [each.kind for each in signature.parameters.values()]
    unknown = [
        each for each in kwargs if each not in signature.parameters and _P.VAR_KEYWORD not in kinds
    ]
    for each in unknown:
        if each != first:
            hint = did_you_mean(each, signature.parameters)
            yield Problem(each, f"There is no argument {each!r}.{hint}")
    by_position = list(signature.parameters)[: len(args)]
    for each, parameter in signature.parameters.items():
        is_needed = parameter.default is _P.empty and parameter.kind not in (
            _P.VAR_POSITIONAL,
            _P.VAR_KEYWORD,
        )
        if is_needed and each not in kwargs and each not in by_position and each != first:
            yield Problem(each, "It is required.")


def _match_arguments(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
    """Yield the parameter's name, the path and the value of each argument with a parameter."""
    parameters = signature.parameters.values()
    positional = [each for each in parameters if each.kind not in (_P.KEYWORD_ONLY, _P.VAR_KEYWORD)]
    for number, value in enumerate(args):
        parameter = positional[min(number, len(positional) - 1)] if positional else None
        if parameter is None:
            return
        if parameter.kind is _P.VAR_POSITIONAL:
            yield parameter.name, (parameter.name, number - len(positional) + 1), value
        elif number < len(positional):
            yield parameter.name, (parameter.name,), value
    rest = next((each.name for each in parameters if each.kind is _P.VAR_KEYWORD), None)
    stars = (_P.VAR_POSITIONAL, _P.VAR_KEYWORD, _P.POSITIONAL_ONLY)
    for name, value in kwargs.items():
        parameter = signature.parameters.get(name)
        if parameter is not None and parameter.kind not in stars:
            yield name, (name,), value
        elif rest is not None:
            yield rest, (name,), value


def _check_value(
    contract: Contract, name: str, path: tuple[str | int, ...], value: Any
) -> Iterator[Problem]:
    """Yield the problems that the contract finds in the value of one argument."""
    from .schema import problems

    if isinstance(value, Reference):
        return  # the worker checks what it fetches
    try:
        plain = json.loads(tagged_json.to_json(value))
    except NotSerializable:
        return  # enqueue() reports this with its own message
    schema, is_wrong = contract.parameters[name], False
    for below, text in problems(contract.validators[name], contract.defs, plain):
        is_wrong = True
        yield Problem(format_path((*path, *below)), text)
    is_default = "default" in schema and plain == schema["default"]
    if not is_wrong and not is_default and name in contract.adapters:
        yield from _run_validators(contract.adapters[name], path, value)


def _run_validators(adapter: Any, path: tuple[str | int, ...], value: Any) -> Iterator[Problem]:
    """Yield the problems that only pydantic finds, not the JSON Schema.

    Examples are bounds for dates and decimals, and custom validators. The value that pydantic
    returns is not used.
    """
    from pydantic import ValidationError

    try:
        adapter.validate_python(value)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            text = shorten(str(each["msg"]), 200)
            yield Problem(format_path((*path, *each["loc"])), f"{text}.")
    # A validator of the project may raise anything.
    except Exception as error:
        text = shorten(f"{type(error).__name__}: {error}", 200)
        yield Problem(format_path(path), f"It cannot be checked: {text}.")


def format_path(path: Sequence[str | int]) -> str:
    """Return a path as text, for example ``order.lines[2].sku``."""
    text = ""
    for part in path:
        name = shorten(str(part), 100)
        text += f"[{name}]" if isinstance(part, int) else f".{name}" if text else name
    return shorten(text, 1000)


# The parameters of a handler in words: name, type, default, and text from the docstring.

# How docstrings begin the text about a parameter, in the three styles.
_SECTIONS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
_SPHINX = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
_GOOGLE = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s+(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)(?:\s*:.*)?$")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """The texts that describe a handler's parameter to people.

    ``default`` is JSON, or Python's ``repr()`` of a value that JSON cannot represent, or None for a
    parameter without a default.
    """

    name: str
    type: str
    default: str | None
    is_required: bool
    description: str


def described(contract: Contract | None, signature: inspect.Signature) -> list[Parameter]:
    """Return a description of each parameter of a Type, or an empty list without a contract."""
    if contract is None:
        return []
    stars: dict[Any, str] = {
        _P.VAR_POSITIONAL: "*",
        _P.VAR_KEYWORD: "**",
    }
    rows = []
    for name, parameter in signature.parameters.items():
        schema, star = contract.parameters[name], stars.get(parameter.kind, "")
        default = None
        if "default" in schema:
            default = json.dumps(schema["default"], ensure_ascii=False)
        elif parameter.default is not parameter.empty:
            default = repr(parameter.default)
        rows.append(
            Parameter(
                name=f"{star}{name}",
                type=describe_schema(schema, contract.defs),
                default=default,
                is_required=not star and parameter.default is parameter.empty,
                description=schema.get("description", ""),
            )
        )
    return rows


def parameter_texts(handler: Callable[..., Any]) -> dict[str, str]:
    """Return each parameter's text from a docstring in Sphinx, Google or NumPy style."""
    lines = (inspect.getdoc(handler) or "").splitlines()
    lines_by_name: dict[str, list[str]] = {}
    form, base, name, indent = "", 0, "", 0
    for number, line in enumerate(lines):
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if sphinx := _SPHINX.match(text):
            name, indent = sphinx[1], depth
            lines_by_name[name] = [sphinx[2]]
            continue
        after = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if after and set(after) == {"-"}:
            form, base, name = ("numpy" if text.lower() in _SECTIONS else ""), depth, ""
            continue
        if text.lower().removesuffix(":") in _SECTIONS and text.endswith(":"):
            form, base, name = "google", depth, ""
            continue
        if not text:
            name = "" if form != "numpy" else name
            continue
        if form == "google" and depth <= base:
            form, name = "", ""
        if name and depth > indent:
            lines_by_name[name].append(text)
            continue
        pattern = {"google": _GOOGLE, "numpy": _NUMPY}.get(form)
        started = pattern.match(text) if pattern else None
        name = started[1] if started else ""
        if started:
            indent = depth
            lines_by_name[name] = [started[2]] if form == "google" else []
    return {name: " ".join(filter(None, each)) for name, each in lines_by_name.items() if any(each)}


# Literals of Enum members, such as ``Literal[Colour.RED]``: ATP stores the value of the member.
#
# For ``Colour`` pydantic accepts the value, but for a literal only the member, which JSON cannot
# represent.

# Entries in a core schema that are not schemas.
_NOT_SCHEMAS = ("default", "metadata", "serialization")


def make_validator(adapter: Any) -> Any:
    """Return a validator that accepts ``1`` for ``Literal[Colour.RED]`` if that is RED's value.

    Pydantic's models are not changed, because ``Model.model_validate()`` in a handler accepts only
    members of the Enum.
    """
    schema = _accept_enum_values(adapter.core_schema)
    if schema is adapter.core_schema:
        return adapter.validator
    from pydantic_core import SchemaValidator

    return SchemaValidator(schema)


def _accept_enum_values(schema: Any) -> Any:
    """Return part of a core schema, changed so that its literals also accept values of members.

    If nothing changes, the same object is returned.
    """
    if type(schema) in (list, tuple):
        parts = [_accept_enum_values(each) for each in schema]
        is_same = all(part is each for part, each in zip(parts, schema, strict=True))
        return schema if is_same else type(schema)(parts)
    if not isinstance(schema, dict) or hasattr(schema.get("cls"), "__pydantic_validator__"):
        return schema
    kind = schema.get("type")
    # A mapping by name, as for fields, has no "type"; any key in it is a name.
    skipped = _NOT_SCHEMAS if isinstance(kind, str) else ()
    widened = {
        key: each if key in skipped else _accept_enum_values(each) for key, each in schema.items()
    }
    if kind == "literal":
        values = _member_values(schema["expected"])
        widened["expected"] = [*schema["expected"], *values] if values else schema["expected"]
    elif kind == "tagged-union":
        for member in filter(_is_member, schema["choices"]):
            widened["choices"] = {member.value: widened["choices"][member], **widened["choices"]}
    return schema if all(widened[key] is each for key, each in schema.items()) else widened


def _member_values(members: Iterable[Any]) -> list[Any]:
    return [each.value for each in members if _is_member(each)]


def _is_member(value: Any) -> bool:
    return isinstance(value, Enum)
