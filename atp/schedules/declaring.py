"""Declare schedules in code with ``schedule()``, and check the parameters of schedules."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from django.conf import settings as project

from ..exceptions import InvalidOption, InvalidSchedule
from ..operations.enqueueing import payload_of
from ..operations.hooks import hooks_of
from ..operations.registry import Declaration, DjangoTask, declared_type, hook_types, is_identifier
from ..options import Options
from ..payload import codec
from ..payload.codec import Payload
from ..store.facts import ScheduleSpec
from ..store.values import HOOK_STATES, Hook
from ..text import as_timedelta as as_length
from ..text import did_you_mean
from .models import LONGEST_LINE, Missed, Overlap
from .timing import Cron, Every, Timing, describe_value

if TYPE_CHECKING:
    from ..store.values import Registration

MOST_MISSED = 10_000
LONGEST = timedelta(days=3650)
# The maximum length of an identifier. It leaves space for the slot in the identifiers of Instances.
LONGEST_IDENTIFIER = 170
# A handler with a parameter of this name gets the time of the slot in it.
SLOT = "slot"
LENGTHS = ("window", "late_after", "jitter")
_CHOICES = {"missed": Missed, "overlap": Overlap}
# The options of using() that a schedule accepts. It also takes ``exact`` from the Type.
_OPTIONS = ("priority", "collection", "start_before", "timeout", *HOOK_STATES)


def schedule(identifier: str, type: Declaration | DjangoTask, **parameters: Any) -> ScheduleSpec:
    """Declare a schedule: daemons enqueue Instances of a Type at certain times.

    ``type`` is a Type, or a task of ``django.tasks``. The Instances of such a task have the task's
    priority, and the name of its queue as their collection.

    Pass either ``cron`` or ``every``. ``cron`` is an expression of five fields, or a nickname such
    as "@daily". ``every`` is a timedelta or a number of seconds; its slots are aligned to the Unix
    epoch. ``timezone`` is the time zone of the cron expression, by default the project's.
    ``inputs`` are keyword arguments of the handler. If the handler has a parameter ``slot``, this
    parameter gets the time of the slot.

    ``missed`` decides what happens to slots that no daemon planned within ``late_after`` (60 s),
    for example because all daemons were down. "skip" runs none of them; "one" runs the newest;
    "all" runs the newest ``most`` (100) of those that are not older than ``window`` (one day).
    ``overlap`` decides what happens to a slot if the last Instance has not ended. "allow" runs
    another Instance in parallel; "skip" skips the slot; "queue" waits until the last Instance has
    ended; "cancel" cancels the last Instance and waits until it has ended. ``jitter`` is the
    maximum delay of a slot; the actual delay is a hash of the slot. ``priority``, ``collection``,
    ``timeout``, ``on_finished`` and ``on_failed`` are options of the Instances, as for ``using()``.
    ``start_before`` is the time after its slot within which an Instance must start; otherwise the
    Instance is FAILED (MISSED). For "run now" and for a backfill, this time begins with the
    enqueue.

    Raises InvalidSchedule or InvalidInputs.
    """
    label = f"schedule({identifier!r}): its second argument"
    task_type = declared_type(type, label, InvalidSchedule)
    spec = check_schedule(identifier, task_type, **parameters)
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    declared_schedules.add(spec, task_type, caller.f_globals.get("__spec__"))  # type: ignore[union-attr]
    return spec


class DeclaredSchedules:
    """The schedules that this process declares, by identifier."""

    def __init__(self) -> None:
        # Each with its Type and the ``__spec__`` of the declaring module, which is None in a shell.
        self._specs: dict[str, tuple[ScheduleSpec, Declaration, ModuleSpec | None]] = {}

    def __iter__(self) -> Iterator[ScheduleSpec]:
        return iter([spec for spec, _, _ in self._specs.values()])

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._specs

    def add(
        self, spec: ScheduleSpec, task_type: Declaration, run: ModuleSpec | None = None
    ) -> None:
        """Add a schedule. Raises InvalidSchedule if another schedule has the same identifier.

        ``run`` is the ``__spec__`` of the module that declares the schedule. If Python executes the
        same module again, the module may declare its schedules again with other values.
        """
        other = self._specs.get(spec.identifier)
        if other is not None and other[1].handler_path != task_type.handler_path:
            raise InvalidSchedule(
                f"The schedule {spec.identifier!r} is declared twice, for {other[1].handler_path} "
                f"and for {task_type.handler_path}."
            )
        if other is not None and other[0] != spec and not _is_again(run, other[2]):
            raise InvalidSchedule(
                f"The schedule {spec.identifier!r} is declared twice, with other values."
            )
        self._specs[spec.identifier] = spec, task_type, run

    def remove(self, identifier: str) -> None:
        """Remove the schedule with this identifier, if this process declares one."""
        self._specs.pop(identifier, None)


declared_schedules = DeclaredSchedules()


def _is_again(run: ModuleSpec | None, before: ModuleSpec | None) -> bool:
    """Return True if a module that declared a schedule may declare the schedule again.

    This is the case if the same module runs again, for example because of importlib.reload(), and
    if a shell declares the schedule (then ``run`` is None).
    """
    return run is None or (before is not None and run is not before and run.name == before.name)


def check_schedule(
    identifier: str,
    task_type: Declaration,
    *,
    cron: str | None = None,
    every: timedelta | float | None = None,
    timezone: str | None = None,
    inputs: Mapping[str, Any] | Payload | None = None,
    missed: str = "one",
    most: int = 100,
    window: timedelta | float = timedelta(days=1),
    late_after: timedelta | float = timedelta(minutes=1),
    overlap: str = "allow",
    jitter: timedelta | float = timedelta(0),
    priority: int | None = None,
    collection: str | None = None,
    start_before: timedelta | float | None = None,
    timeout: timedelta | float | None = None,
    on_finished: Any = None,
    on_failed: Any = None,
    **unknown: Any,
) -> ScheduleSpec:
    """Check the parameters of a schedule; return them with all defaults as a ScheduleSpec.

    ``inputs`` can be a stored pickle, as a Payload, and the hooks can be stored hooks, as a list of
    :class:`atp.store.values.Hook`; these stay unchanged. Raises InvalidInputs, or
    InvalidSchedule, for example for an unknown parameter.
    """
    for name in unknown:
        hint = did_you_mean(name, check_schedule.__kwdefaults__ or ())
        raise InvalidSchedule(f"A schedule has no parameter {name!r}.{hint}")
    _check_identifier(identifier)
    _ = timing(cron, every, timezone)  # raises InvalidSchedule
    lengths = {"window": window, "late_after": late_after, "jitter": jitter}
    checked = {name: _check_length(name, value) for name, value in lengths.items()}
    for name, value in (("missed", missed), ("overlap", overlap)):
        choices = _CHOICES[name].values
        if value not in choices:
            hint = did_you_mean(str(value), choices)
            raise InvalidSchedule(
                f"{name}={value!r}: must be one of {', '.join(choices)}.{hint}", parameter=name
            )
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_MISSED:
        raise InvalidSchedule(
            f"most={most!r}: must be a whole number from 1 to {MOST_MISSED}.", parameter="most"
        )
    if overlap == Overlap.QUEUE and most > LONGEST_LINE:
        raise InvalidSchedule(
            f"most={most}: must be at most {LONGEST_LINE} with overlap='queue'.",
            parameter="most",
        )
    if checked["late_after"] > checked["window"]:
        raise InvalidSchedule(
            "late_after must not be longer than window, or no missed slot would be run.",
            parameter="late_after",
        )
    options = _check_options(task_type, priority=priority, collection=collection, timeout=timeout)
    before = options.start_before if start_before is None else start_before
    if before is not None:
        checked["start_before"] = _check_length("start_before", before, least=1)
        if checked["start_before"] <= checked["jitter"]:
            raise InvalidSchedule(
                "start_before must be longer than jitter, or Instances could not start in time.",
                parameter="start_before",
            )
    hooks, types = _build_hooks(options, on_finished=on_finished, on_failed=on_failed)
    if isinstance(inputs, Payload):
        payload, takes_slot = inputs, False
    else:
        payload, takes_slot = _build_payload(task_type, dict(inputs or {}))
    return ScheduleSpec(
        identifier=identifier,
        type=task_type.identifier,
        inputs=payload,
        takes_slot=takes_slot,
        collection=options.collection,
        priority=options.priority,
        cron=cron or "",
        every=None if every is None else _check_length("every", every, least=1),
        timezone=project.TIME_ZONE if timezone is None else timezone,
        missed=missed,
        most=most,
        overlap=overlap,
        timeout=as_length(options.timeout),
        hooks=hooks,
        hook_types=types,
        **checked,
    )


def complete_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of a schedule in which a new ``cron`` removes ``every``, and vice versa."""
    changes = dict(changes)
    if changes.get("cron") and changes.get("every") is None:
        changes["every"] = None
    elif changes.get("every") is not None and not changes.get("cron"):
        changes["cron"] = None
    return changes


def timing(
    cron: str | None = None, every: timedelta | float | None = None, timezone: str | None = None
) -> Timing:
    """Return the :class:`Timing` for these parameters of a schedule. Raises InvalidSchedule."""
    if (cron is None) == (every is None):
        raise InvalidSchedule(
            "A schedule needs either cron or every, and cannot have both.", parameter="cron"
        )
    zone = project.TIME_ZONE if timezone is None else timezone
    if cron is not None:
        return Cron(cron, zone)
    return Every(_check_length("every", 0 if every is None else every, least=1), timezone=zone)


@contextmanager
def as_invalid_schedule(parameter: str) -> Iterator[None]:
    """Convert an InvalidOption in the ``with`` block to an InvalidSchedule for ``parameter``."""
    try:
        yield
    except InvalidOption as wrong:
        raise InvalidSchedule(str(wrong), parameter=parameter) from None


def _check_identifier(identifier: object) -> None:
    if not is_identifier(identifier) or len(str(identifier)) > LONGEST_IDENTIFIER:
        raise InvalidSchedule(
            f"identifier={identifier!r}: must be at most {LONGEST_IDENTIFIER} letters, digits and "
            "_ . : -",
            parameter="identifier",
        )


def _check_length(name: str, value: object, least: float = 0) -> timedelta:
    """Return a duration of at least ``least`` seconds as a timedelta. Raises InvalidSchedule."""
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise InvalidSchedule(
            f"{name}={value!r}: must be a number of seconds or a timedelta.", parameter=name
        )
    try:
        length = as_length(value)
    except (OverflowError, ValueError):
        length = timedelta.max
    if length is None or not timedelta(seconds=least) <= length <= LONGEST:
        raise InvalidSchedule(
            f"{name}={describe_value(value)}: must be from {least:g} s to {LONGEST.days} days.",
            parameter=name,
        )
    return length


def _check_options(task_type: Declaration, **changes: Any) -> Options:
    options = task_type.options
    for each in fields(Options):
        is_accepted = each.name in (*_OPTIONS, "exact")
        if not is_accepted and getattr(options, each.name) != each.default:
            raise InvalidSchedule(
                f"{task_type.identifier} is given with {each.name}, but a schedule accepts only "
                f"the options {', '.join(_OPTIONS)}."
            )
    for name, value in changes.items():
        if value is not None:
            with as_invalid_schedule(name):
                options = options.using(**{name: value})
    return options


def _build_hooks(
    options: Options, **values: Any
) -> tuple[list[dict[str, Any]] | None, tuple[Registration, ...]]:
    """Return the hooks in their stored form, and the Types of the Instances that they enqueue."""
    hooks: list[Hook] = []
    types: list[Registration] = []
    for on, value in values.items():
        if isinstance(value, list) and value and all(isinstance(each, Hook) for each in value):
            hooks += value
            continue
        specs = getattr(options, on) or ()
        if value is not None:
            with as_invalid_schedule(on):
                specs = hooks_of("A schedule", on, value, InvalidOption)
        hooks += [spec.hook for spec in specs]
        types += hook_types(specs)
    return [hook.entry() for hook in hooks] or None, tuple(types)


def _build_payload(task_type: Declaration, inputs: dict[str, Any]) -> tuple[Payload, bool]:
    """Return the inputs in their stored form, and True if the handler has a ``slot`` parameter."""
    parameters = inspect.signature(task_type.handler).parameters
    takes_slot = SLOT in parameters and SLOT not in inputs
    if not takes_slot:
        return payload_of(task_type, (), inputs), False
    payload = payload_of(task_type, (), inputs | {SLOT: datetime(2000, 1, 1, tzinfo=UTC)})
    if payload.format != codec.JSON:
        raise InvalidSchedule(
            f"{task_type.identifier} stores pickles, but only JSON inputs can have a slot."
        )
    stored = json.loads(payload.data)
    del stored[SLOT]
    return Payload(payload.format, json.dumps(stored)), True
