"""Processes: the Types that are offered to the clients of OGC API – Processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import contracts
from ..exceptions import InvalidType
from ..operations.registry import Declaration, registry
from ..payload import codec
from .schemas import NotDescribable, Schema, to_openapi

# The name of the only output of a handler that returns no object with declared fields.
RESULT = "result"
_ATTRIBUTE = "ogc_process"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True)
class File:
    """An output that the handler publishes as a file of this content type.

    The file is the one that is published under the name of the output, with any extension.
    """

    content_type: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What ``@process`` says of a process beyond its Type and its contract."""

    title: str = ""
    version: str = "1.0.0"
    keywords: tuple[str, ...] = ()
    outputs: Mapping[str, File] = field(default_factory=dict)
    sync: bool = False


def process(
    *,
    title: str = "",
    version: str = "1.0.0",
    keywords: Sequence[str] = (),
    outputs: Mapping[str, File] | None = None,
    sync: bool = False,
) -> Callable[[Decorated], Decorated]:
    """Say more of a Type that is a process; used above or below ``@task_type(…, public=True)``.

    ``outputs`` are files that the handler publishes, by the name of the output. With ``sync``, an
    execution waits for the result if the client does not ask for anything else. Raises InvalidType.
    """
    if isinstance(keywords, str):
        raise InvalidType(f"process: keywords must be a list of words, not {keywords!r}.")
    for name, file in (outputs or {}).items():
        if not isinstance(file, File):
            raise InvalidType(f"process: the output {name!r} must be a File, not {file!r}.")
    offer = Offer(
        title=title,
        version=version,
        keywords=tuple(keywords),
        outputs=dict(outputs or {}),
        sync=sync,
    )

    def decorate(decorated: Decorated) -> Decorated:
        setattr(getattr(decorated, "handler", decorated), _ATTRIBUTE, offer)
        return decorated

    return decorate


def offer_of(task_type: Declaration) -> Offer:
    return getattr(inspect.unwrap(task_type.handler), _ATTRIBUTE, Offer())


def offered() -> Iterator[Declaration]:
    """Yield the Types that are processes, sorted by identifier."""
    found = (each for each in registry if each.public and problem_of(each) is None)
    yield from sorted(found, key=lambda each: each.identifier)


def find(identifier: str) -> Declaration | None:
    """Return the Type that is a process with this identifier, or None."""
    if identifier not in registry:
        return None
    task_type = registry.get(identifier)
    return task_type if task_type.public and problem_of(task_type) is None else None


def problem_of(task_type: Declaration) -> str | None:
    """Return why a public Type cannot be offered as a process, or None if it can."""
    if task_type.serializer != codec.JSON:
        return "its inputs are pickles, and clients can only send JSON"
    kinds = {each.kind for each in task_type.signature.parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
        return "it has arguments without a name, and clients name all inputs"
    try:
        inputs_of(task_type)
        outputs_of(task_type)
    except NotDescribable as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Input:
    """An input of a process: its schemas in OpenAPI 3.0 and as ATP stores it, and its words."""

    name: str
    schema: Schema
    stored: Schema
    description: str
    is_required: bool


def inputs_of(task_type: Declaration) -> list[Input]:
    """Return the inputs of a process. Raises NotDescribable.

    Without pydantic there is no contract, and every input may have any value.
    """
    contract = contracts.schema_of(task_type)
    inputs = []
    for name, parameter in task_type.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        stored = {} if contract is None else contract.parameters[name]
        schema = to_openapi(stored, {} if contract is None else contract.defs)
        inputs.append(
            Input(
                name=name,
                schema={key: value for key, value in schema.items() if key != "description"},
                stored=stored,
                description=schema.get("description", ""),
                is_required=parameter.default is parameter.empty,
            )
        )
    return inputs


def outputs_of(task_type: Declaration) -> dict[str, Schema]:
    """Return the schemas of the outputs of a process, by name. Raises NotDescribable."""
    return returned_of(task_type) | {
        name: {"type": "string", "format": "binary", "contentMediaType": file.content_type}
        for name, file in offer_of(task_type).outputs.items()
    }


def returned_of(task_type: Declaration) -> dict[str, Schema]:
    """Return the schemas of what the handler returns, by output; empty if it returns nothing.

    The fields of an object are outputs of their own. Any other value is the output ``result``.
    Raises NotDescribable.
    """
    contract = contracts.schema_of(task_type)
    if contract is None:
        return {RESULT: {}}
    schema = dict(contract.outputs)
    defs = schema.pop("$defs", {})
    schema.pop("$schema", None)
    if schema == {"type": "null"}:
        return {}
    returned = to_openapi(schema, defs)
    is_object = returned.get("type") == "object" and not returned.get("nullable")
    fields = returned.get("properties", {}) if is_object else {}
    return fields or {RESULT: returned}
