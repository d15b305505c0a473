"""The results of a job: the fields of what the handler returned, and the files it published."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..contracts.plain import without_tags
from ..models import Instance, Response
from ..operations.registry import Declaration
from ..reports import documents
from .documents import JSON, Address, Document
from .processes import RESULT, offer_of, returned_of

_NONE = object()


@dataclass(frozen=True)
class Output:
    """One output of a job.

    It is a ``value``; or the file with this number; or, with neither, the body of the Response.
    """

    name: str
    content_type: str = JSON
    value: Any = _NONE
    number: int | None = None

    @property
    def has_value(self) -> bool:
        return self.value is not _NONE


def outputs(task_type: Declaration, response: Response | None) -> dict[str, Output]:
    """Return the outputs of a job that has finished, by name."""
    if response is None:
        return {}
    found: dict[str, Output] = {}
    if response.content_type:
        for output in _returned(task_type, response):
            found[output.name] = output
    declared = offer_of(task_type).outputs
    for number, file in enumerate(documents.files(response)):
        stem = PurePath(file["name"]).stem
        name = stem if stem in declared else file["name"]
        found[name] = Output(name, file["content_type"], number=number)
    return found


def _returned(task_type: Declaration, response: Response) -> Iterable[Output]:
    if response.content_type.partition(";")[0].strip().lower() != JSON:
        return [Output(RESULT, response.content_type)]
    value = without_tags(json.loads(response.body or b"null"))
    returned = returned_of(task_type)
    if value is None and not returned:
        return []
    if isinstance(value, dict) and [*returned] != [RESULT]:
        return [Output(name, JSON, each) for name, each in value.items()]
    return [Output(RESULT, JSON, value)]


def document(job: Instance, outputs: Iterable[Output], address: Address) -> Document:
    """Return the results of a job as a document: values in place, everything else as links."""
    return {each.name: _entry(job, each, address) for each in outputs}


def _entry(job: Instance, output: Output, address: Address) -> Any:
    if not output.has_value:
        href = address("output", str(job.uuid), output.name)
        return {"href": href, "type": output.content_type}
    if output.value is None or isinstance(output.value, dict):
        # An object has to be said to be a value: otherwise it could be a link.
        return {"value": output.value, "mediaType": JSON}
    return output.value
