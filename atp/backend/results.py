"""Builds a TaskResult from an Instance, and the result's errors from the Instance's log."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings as project
from django.utils import timezone

from .. import exceptions, queue
from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import BLOCKED, MAX_DETAIL, LogRecord
from ..payload import binding
from ..states import Event, Reason, State, events
from . import task as declared
from .frameworks import (
    DEFAULT_QUEUE_NAME,
    TaskError,
    TaskResult,
    TaskResultStatus,
    error,
    inputs_of_result,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models import Instance


# The exception classes for ends that no exception in the handler caused.
EXCEPTION_OF_REASON = {
    Reason.STALE: exceptions.Stale,
    Reason.CANCELLED: exceptions.Cancelled,
    Reason.DROPPED: exceptions.Dropped,
    Reason.MISSED: exceptions.Missed,
    Reason.UPSTREAM: exceptions.Upstream,
}
# The class for an attempt that was recorded before the log named classes.
_UNKNOWN_CLASS = "builtins.Exception"
# The events of attempts that may have an error.
EVENTS = events(lambda row: row.is_outcome) - {Event.FINISH, Event.DEFER}
STATUS = {
    State.ACCEPTED: TaskResultStatus.READY,
    State.SCHEDULED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.PAUSED: TaskResultStatus.RUNNING,
    State.FINISHED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
}


# Errors: an Instance's failures, read from its log.


def errors_of(instance: Instance, records: Iterable[LogRecord]) -> list[Any]:
    """Return a TaskError for each attempt that raised an exception.

    If the Instance FAILED for another reason, such as a cancellation, add an error for that.
    ``records`` are the RETRY and FAIL log records of the Instance, in order.
    """
    records = list(records)
    errors = errors_raised(records)
    if not instance.reason or not records:
        return errors
    last = records[-1]
    other = EXCEPTION_OF_REASON.get(Reason(instance.reason))
    if other is not None:
        errors.append(error_of(f"{exceptions.__name__}.{other.__name__}", last.message))
    elif not last.detail:
        errors.append(error_of(_UNKNOWN_CLASS, last.message))
    return errors


def errors_raised(records: Iterable[LogRecord]) -> list[Any]:
    """Return a TaskError for each log record of an attempt that raised an exception."""
    return [
        error_of(_exception_path(record), record.message)
        for record in records
        if record.detail or record.event == Event.RETRY
    ]


def error_of(path: str, message: str) -> Any:
    """Return a TaskError. Its traceback ends with a newline, like Python's tracebacks."""
    return TaskError(exception_class_path=path, traceback=f"{message}\n")


def _exception_path(record: LogRecord) -> str:
    """Return the dotted path of the exception class that a log record names.

    ``detail`` of the record truncates a long path. The traceback contains the whole path, at the
    beginning of the line that names the exception.
    """
    if len(record.detail) < MAX_DETAIL:
        return record.detail or _UNKNOWN_CLASS
    lines = re.findall(rf"^{re.escape(record.detail)}[\w.]*", record.message, re.MULTILINE)
    return lines[-1] if lines else record.detail


# Results: a TaskResult from an Instance, its log, its inputs and its Response.


def find(result_id: Any, backend: str) -> Any:
    """Return the TaskResult with this id. Raises TaskResultDoesNotExist."""
    try:
        instance = queue.get(str(result_id))
    except UnknownInstance:
        raise error("TaskResultDoesNotExist")(result_id) from None
    return result_of(instance, backend)


def result_of(instance: Instance, backend: str) -> Any:
    """Return the TaskResult of an Instance. Raises TaskResultDoesNotExist.

    The exception is also raised if this process declares no task for the Type, because ATP never
    imports a module that only the database names (guarantee G14).
    """
    missing = error("TaskResultDoesNotExist")
    declaration = declared.find(instance.type.identifier)
    if declaration is None:
        raise missing(
            f"Instance {instance.uuid} has the Type {instance.type.identifier!r}, but this process "
            "declares no task for that Type. Either the task's module has not been imported, or "
            "the Type does not belong to a task of django.tasks."
        )
    inputs = queue.inputs(instance)
    if inputs is None:
        raise missing(str(instance.uuid))
    args, kwargs = binding.unbind(inputs.value)
    records = _read_records(instance)
    starts = [record for record in records if record.event == Event.START]
    result = TaskResult(
        task=_make_task(declaration.task, instance, backend),
        id=str(instance.uuid),
        status=STATUS[State(instance.state)],
        enqueued_at=local(instance.created),
        started_at=local(starts[0].time) if starts else None,
        last_attempted_at=local(starts[-1].time) if starts else None,
        finished_at=local(instance.finished),
        args=inputs_of_result(args),
        kwargs=inputs_of_result(kwargs),
        backend=backend,
        errors=errors_of(instance, [r for r in records if r.event in EVENTS]),
        worker_ids=[record.who for record in starts],
    )
    if instance.state == State.FINISHED:
        response = queue.response(instance)
        object.__setattr__(result, "_return_value", response.value if response else None)
    return result


def make_ready_result(task: Any, instance: Instance, args: Any, kwargs: Any) -> Any:
    """Return the READY TaskResult of a new Instance without reading the database."""
    return TaskResult(
        task=task,
        id=str(instance.uuid),
        status=TaskResultStatus.READY,
        enqueued_at=local(instance.created),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def local(time: datetime | None) -> datetime | None:
    """Convert a time to the form of Django's ``timezone.now()``, which is naive without USE_TZ."""
    if time is None or project.USE_TZ:
        return time
    return timezone.make_naive(time)


def history(instance: int, before: int) -> tuple[Any, list[Any]]:
    """Return when an Instance was enqueued, and the records of attempts before this number."""
    from ..models import Instance

    rows = Instance.objects.using(settings.DATABASE)
    created = rows.filter(pk=instance).values_list("created", flat=True).first()
    return local(created), [r for r in _read_records(instance) if (r.attempt or 0) < before]


def _read_records(instance: Any) -> list[Any]:
    records = LogRecord.objects.using(settings.DATABASE).filter(
        instance=instance, kind__in=(Event.START, *EVENTS)
    )
    return list(records.in_order())


def _make_task(task: Any, instance: Instance, backend: str) -> Any:
    """Return a copy of the task with the options that the queue stores for this Instance."""
    return declared.as_enqueued(
        task,
        backend=backend,
        priority=instance.priority,
        queue_name=instance.collection or DEFAULT_QUEUE_NAME,
        run_after=_original_run_after(instance),
        identifier=instance.identifier,
        start_before=instance.start_before,
        created_by=instance.created_by,
    )


def _original_run_after(instance: Instance) -> datetime | None:
    """Return the ``run_after`` of the enqueue, or None once the first attempt has erased it."""
    if instance.state != State.ACCEPTED or instance.attempt:
        return None
    row = queue.task(instance)
    if row is None or row.due_at in (instance.created, BLOCKED):
        return None
    return local(row.due_at)
