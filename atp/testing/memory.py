"""MemoryContext, a context for unit tests that call a handler without a queue."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import transaction

from ..authoring.context import Context
from ..authoring.loop_context import LoopContext
from ..authoring.steps import StepContext
from ..conf import settings
from ..exceptions import InvalidGraph, NoResult
from ..graphs.models import NodeResult
from ..operations.registry import Declaration
from ..payload import codec
from ..states import State
from ..store.values import Attempt, Checkpoint, Parameters

if TYPE_CHECKING:
    from ..graphs.builder import GraphExtension, Results


class MemoryContext(Context):
    """A context for unit tests that stores a handler's reports in memory.

    ``messages`` lists log messages as pairs of level and text. ``progressed`` lists pairs of
    fraction and text, and ``published`` describes the published files. ``kept`` maps names of steps
    to their results. Pass it to the next context to simulate a later attempt. A sleep ends at once.
    After :meth:`cancel` the handler's next ``check()`` raises Interrupted.
    """

    def __init__(
        self,
        type: Declaration | None = None,
        *,
        attempt: int = 1,
        identifier: str | None = None,
        collection: str | None = None,
        priority: int | None = None,
        results: Mapping[str, Any] | None = None,
        undoes: Any = None,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        self.messages: list[tuple[int, str]] = []
        self.progressed: list[tuple[float | None, str]] = []
        self.published: list[dict[str, Any]] = []
        self.kept: dict[str, Any] = dict(kept or {})
        self._given_results = dict(results or {})
        self._undone_output = undoes
        self._reason: str | None = None
        self._folder = tempfile.TemporaryDirectory(
            prefix="atp-testing-", ignore_cleanup_errors=True
        )
        super().__init__(
            _make_claimed(type, attempt, identifier, collection, priority),
            report=self._receive,
            interruption=lambda: self._reason,
            scratch_root=Path(self._folder.name),
            halting=_NoPauses(),
            keeper=_MemoryCheckpoints(self.kept, type.serializer if type else codec.JSON),
        )

    def cancel(self) -> None:
        """Cancel the attempt, so that ``check()`` raises Interrupted from now on."""
        self._reason = "asked to end"

    def close(self) -> None:
        """Store the messages that are still buffered, and remove the scratch directory."""
        self.end()
        self.remove_scratch()
        self._folder.cleanup()

    @property
    def results(self) -> Results:
        """The outputs of other graph nodes, by name, which the test passed as ``results``."""
        return _GivenResults(self._given_results)  # type: ignore[return-value]

    @property
    def undoes(self) -> NodeResult | None:
        """The graph node that the handler undoes, with the output that the test passed, or None."""
        if self._undone_output is None:
            return None
        return _make_finished_node("undone", self._undone_output)

    def graph(self) -> GraphExtension:
        raise InvalidGraph("This context has no graph. To test a graph, enqueue one and drain it.")

    def flush(self) -> None:
        """Report progress at once, without the limit of ten reports per second."""
        super().flush()
        self._progress_sent = float("-inf")

    def _receive(self, kind: str, *values: Any, at: float | None = None) -> None:
        if kind == "log":
            self.messages.append((values[0], values[1]))
        elif kind == "progress":
            self.progressed.append((values[0], values[1]))
        elif kind == "file":
            self.published.append(values[0])


class MemoryLoopContext(LoopContext, MemoryContext):
    """A MemoryContext for a handler of a Type with a concurrency: methods that wait are awaited."""


class _GivenResults:
    """The results of other graph nodes, which the test passed to the context."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = results

    def __getitem__(self, name: str) -> Any:
        return self.node(name).value

    def node(self, name: str) -> NodeResult:
        if name not in self._results:
            raise NoResult(f"There is no node {name!r}. Pass its output in context(results={{…}}).")
        return _make_finished_node(name, self._results[name])


def _make_finished_node(name: str, output: Any) -> NodeResult:
    return NodeResult(name, State.FINISHED, output=output)


class _NoPauses:
    """Pauses that end at once. Only the handler can request one."""

    def look(self) -> None:
        pass

    def own(self, message: str) -> AbstractContextManager[None]:
        return nullcontext()


class _MemoryCheckpoints:
    """Stores the results of steps in a dict, in the form in which the queue would return them."""

    def __init__(self, kept: dict[str, Any], format: str) -> None:
        self._kept, self._format = kept, format

    def find(self, context: StepContext, name: str) -> Checkpoint | None:
        if name not in self._kept:
            return None
        return Checkpoint(is_done=True, payload=codec.encode(self._kept[name], format=self._format))

    def begin(
        self, context: StepContext, name: str, delay: timedelta | None = None
    ) -> Checkpoint | None:
        if delay is not None:
            return Checkpoint(is_done=True)
        return self.find(context, name)

    def keep(
        self, context: StepContext, name: str, payload: codec.Payload, took: timedelta | None = None
    ) -> None:
        self._kept[name] = codec.decode(payload)

    def transaction(self, context: StepContext, name: str) -> AbstractContextManager[Any]:
        return transaction.atomic(using=settings.DATABASE)

    def fenced(self, context: StepContext) -> AbstractContextManager[Any]:
        return transaction.atomic(using=settings.DATABASE)

    def format(self, context: StepContext) -> str:
        return self._format


def _make_claimed(
    type: Declaration | None,
    attempt: int,
    identifier: str | None,
    collection: str | None,
    priority: int | None,
) -> Attempt:
    declared = type or Declaration(handler=print, identifier="testing")
    options = declared.options
    registration = declared.registration()
    return Attempt(
        instance=0,
        uuid_text=str(uuid4()),
        number=attempt,
        format=declared.serializer,
        data="{}",
        identifier=options.identifier if identifier is None else identifier,
        collection=options.collection if collection is None else collection,
        priority=options.priority if priority is None else priority,
        retries=attempt - 1,
        restarts=0,
        lost=0,
        own=None,
        parameters=Parameters(
            type=declared.identifier,
            timeout=registration.timeout,
            max_retries=registration.max_retries,
            backoff=registration.backoff,
            backoff_max=registration.backoff_max,
            max_restarts=registration.max_restarts,
            max_memory=registration.max_memory,
        ),
        time=None,
    )
