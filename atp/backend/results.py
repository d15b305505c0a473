"""Results: a TaskResult from an Instance, its log, its inputs and its Response."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings as project
from django.utils import timezone

from .. import queue
from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import LogRecord
from ..payload import binding
from ..rows.task import BLOCKED
from ..states import Event, State
from . import declared, errors
from .frameworks import DEFAULT_QUEUE_NAME, TaskResult, TaskResultStatus, error
from .normalizing import inputs_of_result

if TYPE_CHECKING:
    from ..models import Instance

STATUS = {
    State.ACCEPTED: TaskResultStatus.READY,
    State.SCHEDULED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.PAUSED: TaskResultStatus.RUNNING,
    State.FINISHED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
}


def find(result_id: Any, backend: str) -> Any:
    """Return the TaskResult of this id. Raises TaskResultDoesNotExist."""
    try:
        instance = queue.get(str(result_id))
    except UnknownInstance:
        raise error("TaskResultDoesNotExist")(result_id) from None
    return result_of(instance, backend)


def result_of(instance: Instance, backend: str) -> Any:
    """Return the TaskResult of an Instance. Raises TaskResultDoesNotExist.

    It is also raised if this process declares no task for the Type: no module that the
    database names is imported (G14).
    """
    missing = error("TaskResultDoesNotExist")
    found = declared.find(instance.type.identifier)
    if found is None:
        raise missing(
            f"{instance.uuid} is of Type {instance.type.identifier!r}, for which this process "
            "declares no task: its module has not been imported, or it is no task of django.tasks."
        )
    inputs = queue.inputs(instance)
    if inputs is None:
        raise missing(str(instance.uuid))
    args, kwargs = binding.unbind(inputs.value)
    records = _records(instance)
    starts = [record for record in records if record.event == Event.START]
    result = TaskResult(
        task=_task(found.task, instance, backend),
        id=str(instance.uuid),
        status=STATUS[State(instance.state)],
        enqueued_at=local(instance.created),
        started_at=local(starts[0].time) if starts else None,
        last_attempted_at=local(starts[-1].time) if starts else None,
        finished_at=local(instance.finished),
        args=inputs_of_result(args),
        kwargs=inputs_of_result(kwargs),
        backend=backend,
        errors=errors.errors_of(instance, [r for r in records if r.event in errors.EVENTS]),
        worker_ids=[record.who for record in starts],
    )
    if instance.state == State.FINISHED:
        response = queue.response(instance)
        object.__setattr__(result, "_return_value", response.value if response else None)
    return result


def ready(task: Any, instance: Instance, args: Any, kwargs: Any) -> Any:
    """Return the TaskResult of a new Instance, without reading the database."""
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
    """Return a time in the form of Django's ``timezone.now()``: naive if USE_TZ is off."""
    if time is None or project.USE_TZ:
        return time
    return timezone.make_naive(time)


def history(instance: int, before: int) -> tuple[Any, list[Any]]:
    """Return the time when an Instance was enqueued, and its records of earlier attempts."""
    from ..models import Instance

    rows = Instance.objects.using(settings.DATABASE)
    created = rows.filter(pk=instance).values_list("created", flat=True).first()
    return local(created), [r for r in _records(instance) if (r.attempt or 0) < before]


def _records(instance: Any) -> list[Any]:
    records = LogRecord.objects.using(settings.DATABASE).filter(
        instance=instance, kind__in=(Event.START, *errors.EVENTS)
    )
    return list(records.in_order())


def _task(task: Any, instance: Instance, backend: str) -> Any:
    """Return the task as it was enqueued, as far as the queue knows."""
    return declared.as_enqueued(
        task,
        backend=backend,
        priority=instance.priority,
        queue_name=instance.collection or DEFAULT_QUEUE_NAME,
        run_after=_run_after(instance),
        identifier=instance.identifier,
        start_before=instance.start_before,
        created_by=instance.created_by,
    )


def _run_after(instance: Instance) -> datetime | None:
    """Return the ``run_after`` of the enqueue; None from the first attempt on, which erases it."""
    if instance.state != State.ACCEPTED or instance.attempt:
        return None
    row = queue.task(instance)
    if row is None or row.due_at in (instance.created, BLOCKED):
        return None
    return local(row.due_at)
