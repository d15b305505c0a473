"""``schedule()``, the schedules that this process declares, and the checks of their parameters."""

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
from ..store.values.hooks import STATES, Hook
from ..store.values.schedules import ScheduleSpec
from ..text import as_timedelta as as_length
from ..text import did_you_mean
from .models import LONGEST_LINE, Missed, Overlap
from .timing import Cron, Every, Timing, describe_value

if TYPE_CHECKING:
    from ..store.values.types import Registration

MOST_MISSED = 10_000
LONGEST = timedelta(days=3650)
# The maximum length of an identifier. It leaves space for the slot in the identifiers of Instances.
LONGEST_IDENTIFIER = 170
# The argument in which the handler gets the slot, if it has a parameter with this name.
SLOT = "slot"
LENGTHS = ("window", "late_after", "jitter")
_CHOICES = {"missed": Missed, "overlap": Overlap}
# The options of using() that a schedule accepts, beside ``exact``, which it takes from the Type.
_OPTIONS = ("priority", "collection", "start_before", "timeout", *STATES)


def schedule(identifier: str, type: Declaration | DjangoTask, **parameters: Any) -> ScheduleSpec:
    """Declare a schedule: daemons enqueue Instances of a Type at certain times.

    ``type`` is a Type, or a task of ``django.tasks``; the Instances of a task have its priority
    and the name of its queue.

    Give either ``cron``, five fields or a nickname such as "@daily", or ``every``, a timedelta or
    a number of seconds, aligned to the Unix epoch. ``timezone`` is the zone of the cron
    expression, by default the project's. ``inputs`` are keyword arguments of the handler. If the
    handler has a parameter ``slot``, it gets the time of the slot.

    ``missed`` decides about slots that no daemon planned within ``late_after`` (60 s), for example
    because all daemons were down: "skip" runs none of them, "one" the newest, "all" the newest
    ``most`` (100) that are not older than ``window`` (a day). ``overlap`` decides about a slot
    while the last Instance has not ended: "allow" runs another beside it, "skip" skips the slot,
    "queue" waits for its end, "cancel" cancels it and waits for its end. ``jitter`` is the longest
    delay of a slot; a hash of the slot determines the delay. ``priority``, ``collection``,
    ``timeout``, ``on_finished`` and ``on_failed`` are options of the Instances, as for
    ``using()``. ``start_before`` is the time after its slot within which an Instance must start;
    else it is FAILED (MISSED). For "run now" and a backfill the time begins with the enqueue.

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
        # With each, its Type, and the ``__spec__`` of the declaring module; None for a shell.
        self._specs: dict[str, tuple[ScheduleSpec, Declaration, ModuleSpec | None]] = {}

    def __iter__(self) -> Iterator[ScheduleSpec]:
        return iter([spec for spec, _, _ in self._specs.values()])

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._specs

    def add(
        self, spec: ScheduleSpec, task_type: Declaration, run: ModuleSpec | None = None
    ) -> None:
        """Add a schedule. Raises InvalidSchedule if another one has its identifier.

        ``run`` is the ``__spec__`` of the declaring module. If Python executes the module again, it
        declares its schedules again, and may change their values.
        """
        other = self._specs.get(spec.identifier)
        if other is not None and other[1].handler_path != task_type.handler_path:
            raise InvalidSchedule(
                f"The schedule {spec.identifier!r} is declared twice: for {other[1].handler_path} "
                f"and for {task_type.handler_path}."
            )
        if other is not None and other[0] != spec and not _is_again(run, other[2]):
            raise InvalidSchedule(
                f"The schedule {spec.identifier!r} is declared twice, with other values."
            )
        self._specs[spec.identifier] = spec, task_type, run

    def remove(self, identifier: str) -> None:
        """Remove a schedule, if this process declares it."""
        self._specs.pop(identifier, None)


declared_schedules = DeclaredSchedules()


def _is_again(run: ModuleSpec | None, before: ModuleSpec | None) -> bool:
    """Return True if the same module runs again, as by importlib.reload(), or a shell declares."""
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
    """Return a ScheduleSpec from the parameters of a schedule, checked and completed.

    ``inputs`` may be a stored pickle, as a Payload, and the hooks may be stored hooks, as a list of
    :class:`atp.store.values.hooks.Hook`: both stay unchanged. Raises InvalidSchedule, also for an
    unknown parameter, or InvalidInputs.
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
            f"most={most}: with overlap='queue' up to {LONGEST_LINE} Instances may wait.",
            parameter="most",
        )
    if checked["late_after"] > checked["window"]:
        raise InvalidSchedule(
            "late_after must not be longer than window: no slot would be late.",
            parameter="late_after",
        )
    options = _check_options(task_type, priority=priority, collection=collection, timeout=timeout)
    before = options.start_before if start_before is None else start_before
    if before is not None:
        checked["start_before"] = _check_length("start_before", before, least=1)
        if checked["start_before"] <= checked["jitter"]:
            raise InvalidSchedule(
                "start_before must be longer than jitter: a slot could not start in time.",
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
    """Return the changes of a schedule; a new cron removes every, and a new every removes cron."""
    changes = dict(changes)
    if changes.get("cron") and changes.get("every") is None:
        changes["every"] = None
    elif changes.get("every") is not None and not changes.get("cron"):
        changes["cron"] = None
    return changes


def timing(
    cron: str | None = None, every: timedelta | float | None = None, timezone: str | None = None
) -> Timing:
    """Return the Timing of a schedule with these parameters. Raises InvalidSchedule."""
    if (cron is None) == (every is None):
        raise InvalidSchedule("A schedule has either cron or every.", parameter="cron")
    zone = project.TIME_ZONE if timezone is None else timezone
    if cron is not None:
        return Cron(cron, zone)
    return Every(_check_length("every", 0 if every is None else every, least=1), timezone=zone)


@contextmanager
def as_invalid_schedule(parameter: str) -> Iterator[None]:
    """Raise InvalidSchedule, with this parameter, instead of an InvalidOption of the block."""
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
    """Return a length of time as a timedelta; ``least`` is in seconds. Raises InvalidSchedule."""
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise InvalidSchedule(f"{name}={value!r}: must be seconds, or a timedelta.", parameter=name)
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
                f"{task_type.identifier} is given with {each.name}: a schedule accepts only the "
                f"options {', '.join(_OPTIONS)}."
            )
    for name, value in changes.items():
        if value is not None:
            with as_invalid_schedule(name):
                options = options.using(**{name: value})
    return options


def _build_hooks(
    options: Options, **values: Any
) -> tuple[list[dict[str, Any]] | None, tuple[Registration, ...]]:
    """Return the hooks in their stored form, and the Types that they enqueue."""
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
    """Return the inputs in their stored form, and True if the handler gets the slot."""
    parameters = inspect.signature(task_type.handler).parameters
    takes_slot = SLOT in parameters and SLOT not in inputs
    if not takes_slot:
        return payload_of(task_type, (), inputs), False
    payload = payload_of(task_type, (), inputs | {SLOT: datetime(2000, 1, 1, tzinfo=UTC)})
    if payload.format != codec.JSON:
        raise InvalidSchedule(
            f"{task_type.identifier} stores pickles: only JSON inputs can have a slot."
        )
    stored = json.loads(payload.data)
    del stored[SLOT]
    return Payload(payload.format, json.dumps(stored)), True
