"""RunningResult: the result of a task while it runs, in its worker."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.utils import timezone

from ..states import Event
from ..store import get_store
from . import declared, errors, results
from .frameworks import DEFAULT_QUEUE_NAME, TaskResult, TaskResultStatus
from .normalizing import inputs_of_result

if TYPE_CHECKING:
    from ..authoring.context import Context

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
        found = declared.find(context.type)
        assert found is not None
        now = timezone.now()
        result = cls(
            task=declared.as_enqueued(
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
            "errors": errors.raised(r for r in before if r.event in errors.EVENTS),
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
