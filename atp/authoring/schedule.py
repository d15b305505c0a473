"""Declaring schedules: ``schedule("nightly", render, cron="30 2 * * *")``."""

import inspect
from typing import Any

from ..exceptions import InvalidSchedule
from ..store.values import ScheduleSpec
from ..verbs.schedule_specs import declared, spec_of
from .nodes import DjangoTask, declared_type
from .task_type import TaskType


def schedule(identifier: str, type: TaskType | DjangoTask, **given: Any) -> ScheduleSpec:
    """Declare a schedule: daemons enqueue Instances of a Type at certain times.

    ``type`` is a Type, or a task of ``django.tasks``, which then is enqueued with its priority
    and its queue's name.

    Give either ``cron``, five fields or a nickname as "@daily", or ``every``, a timedelta or
    seconds, aligned to the Unix epoch. ``timezone`` is that of the cron expression, by
    default the project's. ``inputs`` are keyword arguments of the handler. If the handler has
    a parameter ``slot``, it gets the time of the slot.

    ``missed`` decides about slots that nobody planned within ``late_after`` (60 s), for example
    because all daemons were down: "skip" runs none of them, "one" the newest, "all" the newest
    ``most`` (100) that are not older than ``window`` (a day). ``overlap`` decides about a slot
    while the last Instance has not ended: "allow" runs another beside it, "skip" skips the slot,
    "queue" waits for its end, "cancel" cancels it and waits for its end. ``jitter`` is the
    longest delay of a slot; a hash of the slot determines the delay. ``priority``,
    ``collection``, ``timeout``, ``on_finished`` and ``on_failed`` are those of the Instances, as
    ``using()`` takes them. ``start_before`` is the time after its slot within which an Instance
    must start; else it is FAILED (MISSED). For run now and a backfill it counts from then on.

    Raises InvalidSchedule, or InvalidInputs.
    """
    told = f"schedule({identifier!r}): its second argument"
    task_type = declared_type(type, told, InvalidSchedule)
    spec = spec_of(identifier, task_type, **given)
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    declared.add(spec, task_type, caller.f_globals.get("__spec__"))  # type: ignore[union-attr]
    return spec
