"""Runs a ``django.tasks`` task in a worker, with its context, its TaskResult and its signals."""

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
from ..daemon import outcomes
from ..daemon.outcomes import Kind
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
    from ..store.values import Attempt


# The values of a RunningResult that are read from the queue when they are first needed.
_DEFERRED = ("enqueued_at", "started_at", "worker_ids", "errors")
# The outcomes that are not final in a worker: the dispatcher decides, or the worker cannot know.
_UNDECIDED = frozenset({Kind.INTERRUPTED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTaskContext(TaskContext):
    """The context that a task with ``takes_context=True`` receives as its first argument.

    ``task_result`` and ``attempt`` are the same as in ``django.tasks``. ``atp`` is the attempt's
    :class:`~atp.Context`, with methods such as ``progress()``, ``check()`` and ``step()``.
    """

    atp: Context | Any


# RunningResult: the result of a task while it runs, in its worker.


def _deferred_property(name: str) -> Any:
    """Return a property that reads its value from the queue on first access."""

    def get(self: Any) -> Any:
        if name not in self.known:
            self.look()
        return self.known[name]

    def set(self: Any, value: Any) -> None:
        self.known[name] = value

    return property(get, set)


class RunningResult(TaskResult):
    """The TaskResult of a running task, which reads only unknown values from the database.

    In a first attempt the worker does not know when the task was enqueued, but knows all other
    values. An unknown value is read on first access, so an attempt usually makes no query and needs
    no connection. Before that read, the times of this attempt come from this host's clock.
    Afterwards they are converted to the database's clock.
    """

    enqueued_at = _deferred_property("enqueued_at")
    started_at = _deferred_property("started_at")
    worker_ids = _deferred_property("worker_ids")
    errors = _deferred_property("errors")

    def __new__(cls, **facts: Any) -> Self:
        """Create the dict ``known``, because the deferred properties use it before ``__init__``."""
        result = super().__new__(cls)
        object.__setattr__(result, "known", {})
        return result

    @classmethod
    def of(cls, context: Context, args: Any, kwargs: Any) -> Self:
        """Return the result for the attempt that begins now. ``args`` excludes the context."""
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
        """The backend's class, which is the sender of the task's signals."""
        return type(self.task.get_backend())

    def give(self, args: Any, kwargs: Any) -> None:
        """Set the arguments of the function call, including the outputs of other graph nodes."""
        object.__setattr__(self, "args", inputs_of_result(args))
        object.__setattr__(self, "kwargs", inputs_of_result(kwargs))

    def end(self, status: Any, time: datetime) -> None:
        """Set the task's final status, and when it ended. ``time`` is from this host's clock."""
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "finished_at", time + (self.offset or timedelta()))

    def refresh(self) -> None:
        """Read the result from the queue again.

        If the task's end is not recorded yet, read only the values that this worker does not know.
        """
        backend = self.task.get_backend()
        if self.finished_at is not None and backend.get_result(self.id).is_finished:
            super().refresh()
        else:
            self.look()

    async def arefresh(self) -> None:
        """Read the result from the queue again, as :meth:`refresh` does."""
        await sync_to_async(self.refresh)()

    def look(self) -> None:
        """Read the values that this worker does not know from the queue."""
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
    """One attempt of a task, which prepares the function's arguments and keeps its return value."""

    def __init__(self, context: Context, args: Any, kwargs: Any) -> None:
        self._context = context
        self._result = _results.get(context) or RunningResult.of(context, args, kwargs)
        self._result.give(args, kwargs)

    def arguments(self, args: Any, *, takes_context: bool) -> Any:
        """Return the positional arguments, preceded by the task's context if the task takes one."""
        if not takes_context:
            return args
        return ATPTaskContext(task_result=self._result, atp=self._context), *args

    def look(self) -> None:
        """Try to read the result's unknown values, and ignore a database error."""
        with suppress(Error):
            self._result.look()

    def set_return_value(self, value: Any) -> Any:
        """Normalize the return value as ``django.tasks`` does, store it, and return it.

        Raises Unusable if the value cannot be normalized.
        """
        try:
            value = with_text_keys(normalize_json(value))
        except (TypeError, ValueError) as error:
            raise Unusable from error
        object.__setattr__(self._result, "_return_value", value)
        return value


def _on_handler_started(context: Context, attempt: Attempt, **_: Any) -> None:
    """Send ``task_started`` when the handler of a task is about to start."""
    if task.find(context.type) is None:
        return
    args, kwargs = binding.unbind(codec.decode(attempt.inputs))
    result = _results[context] = RunningResult.of(context, args, kwargs)
    _send("task_started", result)


def _on_handler_ended(
    context: Context, attempt: Attempt, exception: Any, outcome: outcomes.Outcome, **_: Any
) -> None:
    """Send ``task_finished`` if this worker knows how the task ended, and no retry follows."""
    result = _results.pop(context, None)
    if result is None or outcome.kind in _UNDECIDED:
        return
    event = outcomes.move(outcome, attempt).event
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
    """Send this signal from Django and the backport. Exceptions in receivers are ignored."""
    for signal in frameworks.signals(name):
        if any(is_async for *_, is_async in signal.receivers):
            # Attributes of the result cannot be awaited.
            with suppress(Error):
                result.look()
        signal.send_robust(sender=result.sender, task_result=result)


signals.handler_started.connect(_on_handler_started)
signals.handler_ended.connect(_on_handler_ended)
