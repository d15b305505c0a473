"""A task in a worker: its context, its result while it runs, its signals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import Error
from django.utils import timezone

from .. import signals
from ..daemon.shared import outcome as outcomes
from ..daemon.shared.outcome import Kind
from ..exceptions import Unusable
from ..payload import binding, codec
from ..states import Event
from ..store import get_store
from . import frameworks, results, task
from .frameworks import (
    DEFAULT_QUEUE_NAME,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    inputs_of_result,
    normalize_json,
    with_text_keys,
)

if TYPE_CHECKING:
    from ..authoring.context import Context
    from ..store.values.claims import Claimed


# The values of a RunningResult that are read from the queue when they are first needed.
_DEFERRED = ("enqueued_at", "started_at", "worker_ids", "errors")
# The outcomes that are not final in a worker: the dispatcher decides, or the worker cannot know.
_UNDECIDED = frozenset({Kind.INTERRUPTED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTaskContext(TaskContext):
    """The first argument to a task that takes a context.

    ``task_result`` and ``attempt`` are as in ``django.tasks``. ``atp`` is the attempt's
    :class:`~atp.Context`: progress, check, scratch, publish, step.
    """

    atp: Context | Any


# RunningResult: the result of a task while it runs, in its worker.


def _deferred_property(name: str) -> Any:
    """Return a property that is read from the queue when it is first needed."""

    def get(self: Any) -> Any:
        if name not in self.known:
            self.look()
        return self.known[name]

    def set(self: Any, value: Any) -> None:
        self.known[name] = value

    return property(get, set)


class RunningResult(TaskResult):
    """A TaskResult that reads from the database only the values that the worker does not know.

    In a first attempt that is only the time of the enqueue. It is read when somebody needs it, so
    an attempt usually costs no query and needs no connection. Until then ``started_at`` comes
    from this host's clock; then this attempt's times are converted to the database's clock.
    """

    enqueued_at = _deferred_property("enqueued_at")
    started_at = _deferred_property("started_at")
    worker_ids = _deferred_property("worker_ids")
    errors = _deferred_property("errors")

    def __new__(cls, **facts: Any) -> Self:
        """Create the dict ``known``, which the properties need before ``__init__``."""
        result = super().__new__(cls)
        object.__setattr__(result, "known", {})
        return result

    @classmethod
    def of(cls, context: Context, args: Any, kwargs: Any) -> Self:
        """Return the result for the attempt that begins now. ``args`` are without the context."""
        declaration = task.find(context.type)
        assert declaration is not None
        now = timezone.now()
        result = cls(
            task=task.as_enqueued(
                declaration.task,
                priority=context.priority,
                queue_name=context.collection or DEFAULT_QUEUE_NAME,
                identifier=context.identifier,
            ),
            id=str(context.uuid),
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            last_attempted_at=now,
            finished_at=None,
            args=inputs_of_result(args),
            kwargs=inputs_of_result(kwargs),
            backend=declaration.task.backend,
            errors=[],
            worker_ids=[context.worker],
        )
        object.__setattr__(result, "context_key", context.key)
        del result.known["enqueued_at"]
        if context.attempt > 1:
            result.known.clear()
        object.__setattr__(result, "current", (context.worker, now))
        object.__setattr__(result, "offset", None)
        return result

    @property
    def sender(self) -> type:
        """The backend's class: the sender of the signals."""
        return type(self.task.get_backend())

    def give(self, args: Any, kwargs: Any) -> None:
        """Set the arguments with which the function is called, with outputs of other nodes."""
        object.__setattr__(self, "args", inputs_of_result(args))
        object.__setattr__(self, "kwargs", inputs_of_result(kwargs))

    def end(self, status: Any, time: datetime) -> None:
        """Set the status and the time of the task's end; ``time`` is from this host's clock."""
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "finished_at", time + (self.offset or timedelta()))

    def refresh(self) -> None:
        """Read the result again.

        Before the end is recorded, read only the values that this worker does not know.
        """
        backend = self.task.get_backend()
        if self.finished_at is not None and backend.get_result(self.id).is_finished:
            super().refresh()
        else:
            self.look()

    async def arefresh(self) -> None:
        """Read the result again: see :meth:`refresh`."""
        await sync_to_async(self.refresh)()

    def look(self) -> None:
        """Read the unknown values from the queue."""
        instance, attempt = self.context_key
        enqueued_at, before = results.history(instance, attempt)
        if self.offset is None:
            self._convert(get_store().clock_offset())
        worker, now = self.current
        starts = [record for record in before if record.event == Event.START]
        values = {
            "enqueued_at": enqueued_at,
            "started_at": results.local(starts[0].time) if starts else now,
            "worker_ids": [*(record.who for record in starts), worker],
            "errors": results.errors_raised(r for r in before if r.event in results.EVENTS),
        }
        for name in _DEFERRED:
            self.known.setdefault(name, values[name])

    def _convert(self, offset: timedelta) -> None:
        """Convert this attempt's times from this host's clock to the database's clock."""
        worker, now = self.current
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "current", (worker, now + offset))
        object.__setattr__(self, "last_attempted_at", now + offset)
        if "started_at" in self.known:
            self.known["started_at"] = now + offset
        if self.finished_at is not None:
            object.__setattr__(self, "finished_at", self.finished_at + offset)


# Running tasks in a worker: the context, the return value, and the signals.

# The result of each attempt that runs in this process.
_results: WeakKeyDictionary[Any, RunningResult] = WeakKeyDictionary()


class TaskRun:
    """One attempt of a task: the arguments and the return value of the task's function."""

    def __init__(self, context: Context, args: Any, kwargs: Any) -> None:
        self._context = context
        self._result = _results.get(context) or RunningResult.of(context, args, kwargs)
        self._result.give(args, kwargs)

    def arguments(self, args: Any, *, takes_context: bool) -> Any:
        """Return the positional arguments, with the task's context first if it takes one."""
        if not takes_context:
            return args
        return ATPTaskContext(task_result=self._result, atp=self._context), *args

    def look(self) -> None:
        """Read the result's unknown values, unless the database does not answer."""
        with suppress(Error):
            self._result.look()

    def set_return_value(self, value: Any) -> Any:
        """Store the return value as ``django.tasks`` normalizes it, and return it.

        Raises Unusable if it cannot be normalized.
        """
        try:
            value = with_text_keys(normalize_json(value))
        except (TypeError, ValueError) as error:
            raise Unusable from error
        object.__setattr__(self._result, "_return_value", value)
        return value


def _on_handler_started(context: Context, claimed: Claimed, **_: Any) -> None:
    """Send ``task_started`` for a task: its handler is about to start."""
    if task.find(context.type) is None:
        return
    args, kwargs = binding.unbind(codec.decode(claimed.inputs))
    result = _results[context] = RunningResult.of(context, args, kwargs)
    _send("task_started", result)


def _on_handler_ended(
    context: Context, claimed: Claimed, exception: Any, outcome: outcomes.Outcome, **_: Any
) -> None:
    """Send ``task_finished`` for a task whose end is final and decided in this worker."""
    result = _results.pop(context, None)
    if result is None or outcome.kind in _UNDECIDED:
        return
    event = outcomes.move(outcome, claimed).event
    if event == Event.FINISH:
        result.end(TaskResultStatus.SUCCESSFUL, timezone.now())
        _send("task_finished", result)
    elif event == Event.FAIL:
        result.errors.append(results.error_of(outcome.raised, outcome.message))
        result.end(TaskResultStatus.FAILED, timezone.now())
        if exception is None:
            _send("task_finished", result)
            return
        try:
            raise exception
        except BaseException:  # receivers look at sys.exc_info()
            _send("task_finished", result)


def _send(name: str, result: RunningResult) -> None:
    """Send this signal of each package; a receiver that raises does not affect the task."""
    for signal in frameworks.signals(name):
        if any(is_async for *_, is_async in signal.receivers):
            # Attributes of the result cannot be awaited.
            with suppress(Error):
                result.look()
        signal.send_robust(sender=result.sender, task_result=result)


signals.handler_started.connect(_on_handler_started)
signals.handler_ended.connect(_on_handler_ended)
