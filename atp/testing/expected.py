"""The Instance that a test expects: a Type, arguments and options; and how others differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from ..authoring.task_type import TaskType
from ..conf import settings
from ..exceptions import ATPError, InvalidInputs
from ..graphs.results import comparable
from ..models import Inputs, Instance, Task
from ..payload import binding, codec
from ..payload.sensitive import masked
from ..rows.task import BLOCKED
from ..verbs.registry import registry
from ..words.hints import did_you_mean, seconds
from ..words.options import Options, instant

# The options that steer the enqueue, and are not stored.
_OF_ENQUEUE = ("existing", "on_full", "delay_tolerance", "exact", "on_finished", "on_failed")
# The options that a test can compare.
OPTIONS = tuple(field.name for field in fields(Options) if field.name not in _OF_ENQUEUE)
_TIMES = ("run_after", "start_before")
# A delay counts from the check of the options, which is a moment before the Instance's creation.
_MOMENT = timedelta(seconds=10)


def declared(type: Any) -> TaskType:
    """Return the declared Type for a Type, an identifier, or a task of ``django.tasks``.

    It has the options of ``using()``. Raises UnknownType.
    """
    found = registry.get(str(getattr(type, "module_path", type)))
    return registry.read(type) or found


def _set_by_using(given: Any, type: TaskType) -> dict[str, Any]:
    """Return the comparable options of a Type that differ from those it was declared with."""
    declared_as = registry.get(type.identifier)
    if not isinstance(given, (TaskType, str)):
        from ..backend import declared as tasks

        own = tasks.find(type.identifier)
        if own is not None:
            declared_as = registry.read(own.task) or declared_as
    found = {name: getattr(type.options, name) for name in OPTIONS}
    return {n: v for n, v in found.items() if v != getattr(declared_as.options, n)}


def arguments(
    type: TaskType, args: Sequence[Any], given: Mapping[str, Any], known: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide given values into arguments of the handler, by name, and values in ``known``.

    ``inputs`` has arguments, too. With it, a name that could be both is one in ``known``.
    Raises InvalidInputs for a name that is neither, and without ``inputs`` for one that is both.
    """
    signature = type.signature
    parameters = signature.parameters
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own, others = {}, {}
    for name, value in given.items():
        if name in parameters and name in known and "inputs" not in given:
            raise InvalidInputs(
                f"{name!r} is an argument of {type} and means something here too: give the "
                "arguments as inputs={…}.",
                argument=name,
            )
        if name in known:
            others[name] = value
        elif name in parameters or is_open:
            own[name] = value
        else:
            raise InvalidInputs(
                f"{type} has no argument {name!r}, and there is no option of this name."
                f"{did_you_mean(name, [*parameters, *known])}",
                argument=name,
            )
    inputs = others.pop("inputs", None) or {}
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs={inputs!r}: must be a mapping of arguments by name.")
    own |= inputs
    try:
        bound = signature.bind_partial(*args, **own)
    except TypeError as error:
        raise InvalidInputs(f"{type}{signature}: {error}.") from None
    return named(bound.arguments, signature), others


def named(arguments: Mapping[str, Any], signature: Any) -> dict[str, Any]:
    """Return bound arguments by name, including those that ``**values`` takes."""
    found = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(name, {})
    return found


@dataclass(frozen=True)
class Expected:
    """A Type, with the arguments and options that a test expects of an Instance, by name."""

    type: TaskType
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Expected:
        """Return the expectation in a test's values.

        Raises UnknownType, InvalidInputs or InvalidOption.
        """
        found = declared(type)
        own, options = arguments(found, args, given, (*OPTIONS, "inputs"))
        options = _set_by_using(type, found) | options
        _check_options(options)
        return cls(found, own, options)

    def __str__(self) -> str:
        own = masked(dict(self.arguments), self.type.sensitive)
        told = [f"{name}={value!r}" for name, value in (own | self.options).items()]
        return f"{self.type}({', '.join(told)})"

    def differences(self, instance: Instance, inputs: Inputs, task: Task | None) -> list[str]:
        """Return a line for each argument or option of an Instance that differs."""
        try:
            there = given_to(self.type, inputs)
        except ATPError as error:
            return [f"its inputs cannot be read: {error}"]
        lines = []
        shown = masked(dict(self.arguments), self.type.sensitive)
        for name, wanted in self.arguments.items():
            if name not in there:
                lines.append(f"{name} is not given, expected {shown[name]!r}")
            elif _is_same(there[name], wanted):
                continue
            elif name in self.type.sensitive:
                lines.append(f"{name} is another, and sensitive")
            else:
                lines.append(f"{name}={there[name]!r}, expected {wanted!r}")
        for name, wanted in self.options.items():
            value = _option(instance, task, name)
            if not _is_option(instance, name, value, wanted):
                lines.append(f"{name}={_shown(value)}, expected {_shown(wanted)}")
        return lines


def given_to(type: TaskType, inputs: Inputs) -> dict[str, Any]:
    """Return the arguments that a handler will get, by name, including its defaults."""
    args, kwargs = binding.unbind(inputs.value)
    bound = type.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return named(bound.arguments, type.signature)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a value that no option could have."""
    plain = {name: value for name, value in options.items() if name not in _TIMES}
    Options(**plain)
    for name in _TIMES:
        instant(name, options.get(name), _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _is_same(there: Any, wanted: Any) -> bool:
    """Whether a stored value equals the wanted one, as that is or as the queue would carry it."""
    wanted, there = comparable(wanted), comparable(there)
    if bool(wanted == there):
        return True
    # The values of ``*args`` are a tuple here; the queue carries a list.
    there = list(there) if isinstance(there, tuple) else there
    try:
        return bool(codec.decode(codec.encode(wanted, what="It")) == there)
    except (ATPError, TypeError):
        return False


def _option(instance: Instance, task: Task | None, name: str) -> Any:
    if name == "run_after":
        return task.due_at if task and task.due_at != BLOCKED else None
    if name == "timeout":
        return instance.timeout
    return getattr(instance, name)


def _is_option(instance: Instance, name: str, there: Any, wanted: Any) -> bool:
    if name == "timeout":
        return bool(there == (None if wanted is None else seconds(wanted)))
    if name not in _TIMES:
        return bool(there == wanted)
    if name == "run_after" and wanted is None:
        return there is None or there <= instance.created
    if there is None or wanted is None:
        return there is wanted
    if isinstance(wanted, (int, float)):
        wanted = timedelta(seconds=wanted)
    if isinstance(wanted, timedelta):
        return -_MOMENT <= there - instance.created - wanted <= timedelta(0)
    return bool(there == instant(name, wanted))


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def rows_of(type: TaskType) -> list[tuple[Instance, Inputs, Task | None]]:
    """Return all Instances of a Type, oldest first, each with its Inputs and its Task or None."""
    alias = settings.DATABASE
    own = Instance.objects.using(alias).filter(type__identifier__in=type.names)
    instances = list(own.select_related("type").order_by("pk"))
    keys = {"instance__type__identifier__in": type.names}
    inputs = {row.pk: row for row in Inputs.objects.using(alias).filter(**keys)}
    tasks = {row.pk: row for row in Task.objects.using(alias).filter(**keys)}
    return [(each, inputs[each.pk], tasks.get(each.pk)) for each in instances]
