"""The contract of a Type from its annotations; its parameters in words; checking inputs against
it.
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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import text as wording
from ..conf import settings
from ..exceptions import InvalidInputs, NotSerializable
from ..payload import binding, codec
from ..payload import json as tagged_json
from ..text import did_you_mean

if TYPE_CHECKING:
    from ..operations.registry import Declaration


# The annotations of a handler, except its context: each is resolved by itself.

RETURNED = "return"


def annotations_of(
    handler: Callable[..., Any], signature: inspect.Signature
) -> Iterator[tuple[str, Any]]:
    """Yield pairs of name and annotation; the name of the outputs is ``return``.

    If an annotation is text that cannot be evaluated, as a name imported only for type checkers,
    the exception is yielded in its place.
    """
    named = {name: each.annotation for name, each in signature.parameters.items()}
    named[RETURNED] = signature.return_annotation
    names = getattr(inspect.unwrap(handler), "__globals__", {})
    for name, annotation in named.items():
        if annotation is not inspect.Parameter.empty:
            yield name, _resolved(annotation, names)


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    # Code in the text of an annotation may raise anything.
    except Exception as error:
        return error
    return found


# The contract of a Type: JSON Schema of its inputs and outputs, made once per process.

Schema = dict[str, Any]

NEEDED = "Contracts need the packages pydantic and jsonschema, the extra [contracts] of ATP."
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_P = inspect.Parameter


@dataclass(frozen=True, kw_only=True)
class Contract:
    """JSON Schema of the inputs and outputs of a Type, in their stored form.

    ``parameters`` are the schemas of single arguments by name; for ``*more`` and ``**more`` the
    schema of each value. ``defs`` are the definitions that they refer to. ``adapters`` are
    pydantic's, by name. ``hints`` say, by name, why an annotation accepts any JSON.
    """

    inputs: Schema
    outputs: Schema
    parameters: dict[str, Schema]
    defs: dict[str, Schema]
    adapters: dict[str, Any]
    hints: dict[str, str]

    @cached_property
    def validators(self) -> dict[str, Any]:
        """The validators of jsonschema, by name; they are made once."""
        from .problems import validator_of as json_validator

        return {name: json_validator(each, self.defs) for name, each in self.parameters.items()}


@cache
def is_available() -> bool:
    """Whether pydantic and jsonschema are installed."""
    try:
        return all(find_spec(name) is not None for name in ("pydantic", "jsonschema"))
    except ValueError:  # sys.modules says that there is none
        return False


def schema_of(task_type: Declaration) -> Contract | None:
    """Return the contract of a Type; None if the Type stores pickles, or pydantic is missing."""
    if task_type.serializer != codec.JSON or not is_available():
        return None
    return _contract_of(task_type.handler)


def document_of(task_type: Declaration | None) -> dict[str, Schema | None]:
    """Return both schemas as a document, with None where there is no contract.

    ``task_type`` is None for a Type that this process does not declare: it has no contract.
    """
    found = None if task_type is None else schema_of(task_type)
    return {
        "inputs_schema": None if found is None else found.inputs,
        "outputs_schema": None if found is None else found.outputs,
    }


@cache
def _contract_of(handler: Callable[..., Any]) -> Contract:
    signature, _ = binding.signatures_of(handler)
    adapters, hints = _adapters(handler, signature)
    schemas, defs = _schemas(adapters)
    texts = texts_of(handler)
    parameters = {}
    for name, parameter in signature.parameters.items():
        schema = _with_default(schemas.get(name, {}), parameter.default, defs)
        if name in texts:
            schema = {**schema, "description": texts[name]}
        parameters[name] = schema
    return Contract(
        inputs=_document(_inputs(signature, parameters, inspect.getdoc(handler)), defs),
        outputs=_document(schemas.get(RETURNED, {}), defs),
        parameters=parameters,
        defs=defs,
        adapters=adapters,
        hints=hints,
    )


def _adapters(
    handler: Callable[..., Any], signature: inspect.Signature
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return pydantic's adapters by name, and by name the reason why an annotation has none."""
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
                adapter.validator = validator_of(adapter)
        # The classes of a project may define their own schema: that code may raise anything.
        except Exception as error:
            [reason, *_] = str(error).splitlines() or [""]
            hints[name] = f"{type(error).__name__}: {reason.partition('. ')[0]}"
        else:
            adapters[name] = adapter
    return adapters, hints


def _schemas(adapters: dict[str, Any]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Return the schemas by name, and the definitions that they share."""
    from pydantic import TypeAdapter

    from .schema import TaggedSchema

    given: Any = [(name, "validation", adapter) for name, adapter in adapters.items()]
    with warnings.catch_warnings():
        # A default that JSON cannot have is left out.
        warnings.simplefilter("ignore")
        made, shared = TypeAdapter.json_schemas(given, schema_generator=TaggedSchema)
    return {name: schema for (name, _), schema in made.items()}, dict(shared.get("$defs", {}))


def _with_default(schema: Schema, default: Any, defs: dict[str, Schema]) -> Schema:
    """Return the schema with a default. The default always fits, even None for an int."""
    if default is _P.empty:
        return schema
    try:
        plain = json.loads(tagged_json.to_json(default))
    except NotSerializable:
        return schema
    from .problems import validator_of as json_validator

    if not json_validator(schema, defs).is_valid(plain):
        schema = {"anyOf": [schema, {"const": plain}]}
    return {**schema, "default": plain}


def _inputs(signature: inspect.Signature, parameters: dict[str, Schema], doc: str | None) -> Schema:
    """Return the schema of stored inputs: arguments by name, positional ones under "*"."""
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
    made: Schema = {"type": "object", "properties": properties, "required": required}
    if takes_more or _P.POSITIONAL_ONLY in kinds.values():
        given = {"type": "array", "prefixItems": first, "items": by_position, "minItems": needed}
        properties[binding.POSITIONAL] = given
        if needed:
            required.append(binding.POSITIONAL)
    made["additionalProperties"] = rest
    return {"description": doc, **made} if doc else made


def _document(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Return a self-contained schema, with the definitions that it uses."""
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
    made = {"$schema": DIALECT, **schema}
    return {**made, "$defs": dict(sorted(used.items()))} if used else made


# The check of inputs against a contract: each problem by its path. enqueue() does not check.

# The maximum number of problems that are returned.
MOST = 20


class Problem(NamedTuple):
    """A part of the inputs that does not fit; ``path`` looks like ``order.lines[2].sku``."""

    path: str
    text: str


def check(task_type: Declaration, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Problem]:
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


def require(task_type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
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
    task_type: Declaration, contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]
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


# The parameters of a handler in words: name, type, default, and text from the docstring.

_SECTIONS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
_SPHINX = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
_GOOGLE = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s+(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)(?:\s*:.*)?$")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter in words for people; ``default`` is JSON, None if it is required."""

    name: str
    type: str
    default: str | None
    is_required: bool
    description: str


def described(contract: Contract | None, signature: inspect.Signature) -> list[Parameter]:
    """Return the parameters of a Type as rows of a table; an empty list without a contract."""
    if contract is None:
        return []
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    found = []
    for name, parameter in signature.parameters.items():
        schema, star = contract.parameters[name], stars.get(parameter.kind, "")
        default = None
        if "default" in schema:
            default = json.dumps(schema["default"], ensure_ascii=False)
        elif parameter.default is not parameter.empty:
            default = repr(parameter.default)
        found.append(
            Parameter(
                name=f"{star}{name}",
                type=wording.schema_words(schema, contract.defs),
                default=default,
                is_required=not star and parameter.default is parameter.empty,
                description=schema.get("description", ""),
            )
        )
    return found


def texts_of(handler: Callable[..., Any]) -> dict[str, str]:
    """Return the text of each parameter in the docstring, in Sphinx, Google or NumPy style."""
    lines = (inspect.getdoc(handler) or "").splitlines()
    found: dict[str, list[str]] = {}
    form, base, name, indent = "", 0, "", 0
    for number, line in enumerate(lines):
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if sphinx := _SPHINX.match(text):
            name, indent = sphinx[1], depth
            found[name] = [sphinx[2]]
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
            found[name].append(text)
            continue
        pattern = {"google": _GOOGLE, "numpy": _NUMPY}.get(form)
        started = pattern.match(text) if pattern else None
        name = started[1] if started else ""
        if started:
            indent = depth
            found[name] = [started[2]] if form == "google" else []
    return {name: " ".join(filter(None, texts)) for name, texts in found.items() if any(texts)}


# Literals of Enum members, as ``Literal[Colour.RED]``: the stored value is that of the member.
#
# Pydantic takes the value for ``Colour``, but for a literal only the member, which JSON cannot
# have.

# Entries of a core schema that are no schemas.
_OTHER = ("default", "metadata", "serialization")


def validator_of(adapter: Any) -> Any:
    """Return the validator of pydantic's adapter; in literals it takes the values of Enums.

    Classes of pydantic are left alone: ``Model.model_validate()`` in a handler takes only members.
    """
    schema = _widened(adapter.core_schema)
    if schema is adapter.core_schema:
        return adapter.validator
    from pydantic_core import SchemaValidator

    return SchemaValidator(schema)


def _widened(schema: Any) -> Any:
    """Return a part of a core schema with the values of members; the same part if it has none."""
    if type(schema) in (list, tuple):
        parts = [_widened(each) for each in schema]
        is_same = all(made is each for made, each in zip(parts, schema, strict=True))
        return schema if is_same else type(schema)(parts)
    if not isinstance(schema, dict) or hasattr(schema.get("cls"), "__pydantic_validator__"):
        return schema
    kind = schema.get("type")
    # A mapping of names, as of fields, has no kind, and any names.
    skipped = _OTHER if isinstance(kind, str) else ()
    found = {key: each if key in skipped else _widened(each) for key, each in schema.items()}
    if kind == "literal":
        values = _values(schema["expected"])
        found["expected"] = [*schema["expected"], *values] if values else schema["expected"]
    elif kind == "tagged-union":
        for member in filter(_is_member, schema["choices"]):
            found["choices"] = {member.value: found["choices"][member], **found["choices"]}
    return schema if all(found[key] is each for key, each in schema.items()) else found


def _values(members: Iterable[Any]) -> list[Any]:
    return [each.value for each in members if _is_member(each)]


def _is_member(value: Any) -> bool:
    return isinstance(value, Enum)
