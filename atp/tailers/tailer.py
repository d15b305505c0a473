"""Tailer: a declared source with the function that maps its records, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..authoring.task_type import TaskType
from ..sources import Record, Source
from ..sources import base as sources
from ..verbs.enqueueing import Call

Mapped: TypeAlias = Call | Iterable[Call] | None
Function: TypeAlias = Callable[[Any], Mapped]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tailer:
    """A declared tailer: its source, and the function that maps a record to calls.

    An attempt of ``type`` reads the source. An attempt of ``rejected`` maps one record that was
    put aside. Calling a tailer calls its function, for tests.
    """

    identifier: str
    source: Source
    function: Function
    batch: int
    type: TaskType[[], dict[str, Any]]
    rejected: TaskType[..., int]

    do_not_call_in_templates = True

    def __call__(self, record: Record) -> list[Call]:
        """Return the calls that the function makes of a record. Raises TypeError."""
        found = self.function(record)
        if found is None:
            return []
        if isinstance(found, Call):
            return [found]
        calls = list(found) if isinstance(found, Iterable) else [found]
        for call in calls:
            if not isinstance(call, Call):
                raise TypeError(
                    f"Tailer {self.identifier!r} returned {call!r}: it must return calls, as "
                    "hillshade.call(path=…), or None."
                )
        return calls

    def __str__(self) -> str:
        return self.identifier


class Tailers:
    """The tailers that this process declares, by identifier."""

    def __init__(self) -> None:
        self._tailers: dict[str, Tailer] = {}

    def __iter__(self) -> Iterator[Tailer]:
        return iter(list(self._tailers.values()))

    def add(self, tailer: Tailer) -> None:
        """Add a tailer, or the same one again. Its Type has refused another of its name."""
        self._tailers[tailer.identifier] = tailer
        sources.declared[tailer.identifier] = tailer.source

    def remove(self, identifier: str) -> None:
        """Remove a tailer; no error if there is none."""
        self._tailers.pop(identifier, None)
        sources.declared.pop(identifier, None)


declared = Tailers()
