"""The results of a job: the fields of what the handler returned, and its published files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from .. import middleware
from ..contracts.plain import without_tags
from ..models import Instance, Response
from ..operations.registry import Declaration
from ..reports import documents
from ..text import did_you_mean
from . import problems
from .documents import JSON, Address, Document
from .processes import RESULT, offer_of, returned_of

_NONE = object()
# How an output is transmitted.
VALUE, REFERENCE = "value", "reference"
# The name under which an Instance keeps what its client wants.
_SAVED = "ogc"


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


@dataclass(frozen=True)
class Wanted:
    """Which outputs of a job a client wants: all if ``names`` is empty.

    ``references`` are those that the document only links to. If the job has one wanted output and
    ``is_raw`` is True, the results are this output alone.
    """

    names: Sequence[str] = ()
    references: Sequence[str] = ()
    is_raw: bool = False

    def chosen(self, found: Mapping[str, Output]) -> list[Output]:
        """Return the outputs that are wanted. Raises ProblemError if the job lacks one."""
        for name in self.names:
            if name not in found:
                raise problems.no_such_output(name, did_you_mean(name, found))
        return [found[name] for name in self.names or found]

    def saved(self) -> AbstractContextManager[None]:
        """Return the block whose enqueue keeps this for the results of an asynchronous job."""
        return nullcontext() if self == Wanted() else middleware.saving(_SAVED, asdict(self))


def wanted_of(job: Instance) -> Wanted:
    """Return what the client wanted when it executed the process."""
    return Wanted(**job.carried.get(_SAVED, {}))


def outputs(task_type: Declaration, response: Response | None) -> dict[str, Output]:
    """Return the outputs of a job that has finished, by name."""
    if response is None:
        return {}
    found: dict[str, Output] = {}
    if response.content_type:
        for output in _returned(task_type, response):
            found[output.name] = output
    files = documents.files(response)
    of_declared = _declared_files(task_type, files)
    for name, number in of_declared.items():
        found[name] = Output(name, files[number]["content_type"], number=number)
    for number, file in enumerate(files):
        if number not in of_declared.values():
            name = _free_name(file["name"], found)
            found[name] = Output(name, file["content_type"], number=number)
    return found


def _declared_files(task_type: Declaration, files: Sequence[Document]) -> dict[str, int]:
    """Return the number of the file that each declared output is, by the name of the output.

    Of several files with the stem of an output, it is the first of the declared content type, or
    else the first.
    """
    chosen = {}
    for name, declared in offer_of(task_type).outputs.items():
        numbers = [n for n, file in enumerate(files) if PurePath(file["name"]).stem == name]
        fitting = [n for n in numbers if files[n]["content_type"] == declared.content_type]
        if numbers:
            chosen[name] = (fitting or numbers)[0]
    return chosen


def _free_name(name: str, taken: Container[str]) -> str:
    """Return the name of a file, with a number behind it if another output has the name."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


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


def document(
    job: Instance, outputs: Iterable[Output], address: Address, wanted: Wanted
) -> Document:
    """Return the results of a job as a document: values in place, everything else as links."""
    return {
        each.name: _entry(job, each, address, is_link=each.name in wanted.references)
        for each in outputs
    }


def _entry(job: Instance, output: Output, address: Address, *, is_link: bool) -> Any:
    if is_link or not output.has_value:
        href = address("output", str(job.uuid), output.name)
        return {"href": href, "type": output.content_type}
    if output.value is None or isinstance(output.value, dict):
        # An object could also be a link, so it has to be marked as a value.
        return {"value": output.value, "mediaType": JSON}
    return output.value
