"""The contract of a Type: JSON Schema of its inputs and outputs, made once per process."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..exceptions import NotSerializable
from ..payload import binding, codec, tagged_json
from .annotations import RETURNED, annotations_of
from .described import texts_of

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType

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
        from .problems import validator_of

        return {name: validator_of(each, self.defs) for name, each in self.parameters.items()}


@cache
def is_available() -> bool:
    """Whether pydantic and jsonschema are installed."""
    try:
        return all(find_spec(name) is not None for name in ("pydantic", "jsonschema"))
    except ValueError:  # sys.modules says that there is none
        return False


def schema_of(task_type: TaskType) -> Contract | None:
    """Return the contract of a Type; None if the Type stores pickles, or pydantic is missing."""
    if task_type.serializer != codec.JSON or not is_available():
        return None
    return _contract_of(task_type.handler)


def document_of(task_type: TaskType | None) -> dict[str, Schema | None]:
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

    from .literals import validator_of
    from .tagged_schema import TaggedSchema

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

    from .tagged_schema import TaggedSchema

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
    from .problems import validator_of

    if not validator_of(schema, defs).is_valid(plain):
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
