"""MemoryContext: a context for unit tests of handlers, with no queue behind it."""

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
from ..authoring.steps import StepContext
from ..conf import settings
from ..exceptions import InvalidGraph, NoResult
from ..graphs.models import NodeResult
from ..operations.registry import Declaration
from ..payload import codec
from ..states import State
from ..store.values.claims import Claimed
from ..store.values.steps import Checkpoint
from ..store.values.types import Parameters

if TYPE_CHECKING:
    from ..graphs.builder import Growth, Results


class MemoryContext(Context):
    """Keeps what a handler reports, in ``messages``, ``progressed`` and ``published``.

    ``messages`` are pairs of level and text, ``progressed`` pairs of fraction and text. ``kept``
    has the results of steps by name: give it to the next context, as to a later attempt. A
    sleep is over at once. After :meth:`cancel` the attempt has to end.
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
        self._given = dict(results or {})
        self._undone = undoes
        self._reason: str | None = None
        self._folder = tempfile.TemporaryDirectory(
            prefix="atp-testing-", ignore_cleanup_errors=True
        )
        super().__init__(
            _claimed(type, attempt, identifier, collection, priority),
            report=self._take,
            interruption=lambda: self._reason,
            scratch_root=Path(self._folder.name),
            halting=_Free(),
            keeper=_Keeper(self.kept, type.serializer if type else codec.JSON),
        )

    def cancel(self) -> None:
        """Ask the attempt to end: ``check()`` raises Interrupted from now on."""
        self._reason = "asked to end"

    def close(self) -> None:
        """Take the messages that were not sent yet, and remove the scratch directory."""
        self.end()
        self.remove_scratch()
        self._folder.cleanup()

    @property
    def results(self) -> Results:
        """The outputs of other nodes that the test has given, by name."""
        return _Given(self._given)  # type: ignore[return-value]

    @property
    def undoes(self) -> NodeResult | None:
        """The node that is undone, with the output that the test has given; else None."""
        return None if self._undone is None else _finished("undone", self._undone)

    def graph(self) -> Growth:
        raise InvalidGraph("This context is in no graph: enqueue one, and drain it.")

    def flush(self) -> None:
        """Take each progress, without the limit of ten a second."""
        super().flush()
        self._progress_sent = float("-inf")

    def _take(self, kind: str, *values: Any, at: float | None = None) -> None:
        if kind == "log":
            self.messages.append((values[0], values[1]))
        elif kind == "progress":
            self.progressed.append((values[0], values[1]))
        elif kind == "file":
            self.published.append(values[0])


class _Given:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def __getitem__(self, name: str) -> Any:
        return self.node(name).value

    def node(self, name: str) -> NodeResult:
        if name not in self._given:
            raise NoResult(f"There is no node {name!r}: context(results={{…}}) gives results.")
        return _finished(name, self._given[name])


def _finished(name: str, output: Any) -> NodeResult:
    return NodeResult(name, State.FINISHED, output=output)


class _Free:
    """Pauses that never wait: nobody asks for one, and the handler's own end at once."""

    def look(self) -> None:
        pass

    def own(self, message: str) -> AbstractContextManager[None]:
        return nullcontext()


class _Keeper:
    """Keeps the results of steps in a dict, as values that the queue would give back."""

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


def _claimed(
    type: Declaration | None,
    attempt: int,
    identifier: str | None,
    collection: str | None,
    priority: int | None,
) -> Claimed:
    declared = type or Declaration(handler=print, identifier="testing")
    options = declared.options
    said = declared.registration()
    return Claimed(
        instance=0,
        name=str(uuid4()),
        attempt=attempt,
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
            timeout=said.timeout,
            max_retries=said.max_retries,
            backoff=said.backoff,
            backoff_max=said.backoff_max,
            max_restarts=said.max_restarts,
            max_memory=said.max_memory,
        ),
        time=None,
    )
