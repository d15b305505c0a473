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


# ATPTaskContext: the context of ``django.tasks`` for a task, with ATP's own context in it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTaskContext(TaskContext):
    """The first argument of a task that takes a context.

    ``task_result`` and ``attempt`` are those of ``django.tasks``. ``atp`` is the
    :class:`~atp.Context` of the attempt: progress, check, scratch, publish, step.
    """

    atp: Context | Any


# RunningResult: the result of a task while it runs, in its worker.

_LATE = ("enqueued_at", "started_at", "worker_ids", "errors")


def _late(name: str) -> Any:
    """Return a property that is read from the queue when it is first asked for."""

    def get(self: Any) -> Any:
        if name not in self.known:
            self.look()
        return self.known[name]

    def set(self: Any, value: Any) -> None:
        self.known[name] = value

    return property(get, set)


class RunningResult(TaskResult):
    """A TaskResult that reads from the database only the values that the worker does not know.

    In a first attempt that is the time of the enqueue alone. It is read when somebody asks for
    it, so an attempt usually costs no query and needs no connection. Until then ``started_at`` is
    of this host's clock; then this attempt's times are converted to the database's clock.
    """

    enqueued_at = _late("enqueued_at")
    started_at = _late("started_at")
    worker_ids = _late("worker_ids")
    errors = _late("errors")

    def __new__(cls, **facts: Any) -> Self:
        """Make the dict of known values, which the properties need before ``__init__``."""
        result = super().__new__(cls)
        object.__setattr__(result, "known", {})
        return result

    @classmethod
    def of(cls, context: Context, args: Any, kwargs: Any) -> Self:
        """Return the result of the attempt that begins now. ``args`` do not have the context."""
        found = task.find(context.type)
        assert found is not None
        now = timezone.now()
        result = cls(
            task=task.as_enqueued(
                found.task,
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
            backend=found.task.backend,
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
        """The class of the backend, which sends the signals."""
        return type(self.task.get_backend())

    def give(self, args: Any, kwargs: Any) -> None:
        """Note the arguments with which the function is called: outputs of other nodes too."""
        object.__setattr__(self, "args", inputs_of_result(args))
        object.__setattr__(self, "kwargs", inputs_of_result(kwargs))

    def end(self, status: Any, time: datetime) -> None:
        """Note the status and the time of the task's end, by this host's clock."""
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "finished_at", time + (self.offset or timedelta()))

    def refresh(self) -> None:
        """Read the result again. Until its end is recorded, its worker knows more."""
        backend = self.task.get_backend()
        if self.finished_at is not None and backend.get_result(self.id).is_finished:
            super().refresh()
        else:
            self.look()

    async def arefresh(self) -> None:
        """Read the result again: see :meth:`refresh`."""
        await sync_to_async(self.refresh)()

    def look(self) -> None:
        """Read the values that are not known yet from the queue."""
        instance, attempt = self.context_key
        enqueued_at, before = results.history(instance, attempt)
        if self.offset is None:
            self._convert(get_store().clock_offset())
        worker, now = self.current
        starts = [record for record in before if record.event == Event.START]
        found = {
            "enqueued_at": enqueued_at,
            "started_at": results.local(starts[0].time) if starts else now,
            "worker_ids": [*(record.who for record in starts), worker],
            "errors": results.raised(r for r in before if r.event in results.EVENTS),
        }
        for name in _LATE:
            self.known.setdefault(name, found[name])

    def _convert(self, offset: timedelta) -> None:
        """Convert the times of this attempt, which are of this host's clock, to the database's."""
        worker, now = self.current
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "current", (worker, now + offset))
        object.__setattr__(self, "last_attempted_at", now + offset)
        if "started_at" in self.known:
            self.known["started_at"] = now + offset
        if self.finished_at is not None:
            object.__setattr__(self, "finished_at", self.finished_at + offset)


# Running tasks in a worker: the context, the return value, and the signals around.

# The result of each attempt that runs in this process.
_running: WeakKeyDictionary[Any, RunningResult] = WeakKeyDictionary()

# The outcomes that the worker does not decide alone, or cannot know.
_OPEN = frozenset({Kind.INTERRUPTED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})


class Attempt:
    """An attempt of a task: the arguments and the return value of the task's function."""

    def __init__(self, context: Context, args: Any, kwargs: Any) -> None:
        self._context = context
        self._result = _running.get(context) or RunningResult.of(context, args, kwargs)
        self._result.give(args, kwargs)

    def arguments(self, args: Any, *, takes_context: bool) -> Any:
        """Return the positional arguments: the task's context comes first, if it takes one."""
        if not takes_context:
            return args
        return ATPTaskContext(task_result=self._result, atp=self._context), *args

    def look(self) -> None:
        """Read the values of the result that are not known yet, if the database answers."""
        with suppress(Error):
            self._result.look()

    def returned(self, value: Any) -> Any:
        """Note the return value as ``django.tasks`` normalizes it, and return it.

        Raises Unusable if it cannot be normalized.
        """
        try:
            value = with_text_keys(normalize_json(value))
        except (TypeError, ValueError) as error:
            raise Unusable from error
        object.__setattr__(self._result, "_return_value", value)
        return value


def _started(context: Context, claimed: Claimed, **_: Any) -> None:
    """Send ``task_started`` for a task: its handler is about to be entered."""
    if task.find(context.type) is None:
        return
    args, kwargs = binding.unbind(codec.decode(claimed.inputs))
    result = _running[context] = RunningResult.of(context, args, kwargs)
    _send("task_started", result)


def _ended(
    context: Context, claimed: Claimed, exception: Any, outcome: outcomes.Outcome, **_: Any
) -> None:
    """Send ``task_finished`` for a task that has ended: no retry, and the worker decides alone."""
    result = _running.pop(context, None)
    if result is None or outcome.kind in _OPEN:
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
    """Send this signal of each package; a receiver that raises does not harm the task."""
    for signal in frameworks.signals(name):
        if any(is_async for *_, is_async in signal.receivers):
            # Attributes of the result cannot be awaited.
            with suppress(Error):
                result.look()
        signal.send_robust(sender=result.sender, task_result=result)


signals.handler_started.connect(_started)
signals.handler_ended.connect(_ended)
