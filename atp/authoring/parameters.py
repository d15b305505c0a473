"""The parameters of `@task_type`: their types and checks."""

import inspect
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict
from urllib.parse import urlsplit

from asgiref.sync import iscoroutinefunction

from .. import placement
from ..conf import settings
from ..exceptions import InvalidLimit, InvalidOption, InvalidType
from ..operations import hooks, registry
from ..operations.gates import check_limits
from ..operations.registry import COUNTS, DURATIONS, is_identifier
from ..options import MAX_ADDRESS, Options, check_text
from ..payload import binding, codec
from ..text import as_timedelta, did_you_mean, read_memory
from . import retrying


class TypeParameters(TypedDict, total=False):
    """The keyword arguments of ``@task_type``, all of them optional."""

    timeout: timedelta | float | None
    backoff: timedelta | float | Sequence[timedelta | float]
    backoff_max: timedelta | float
    retention: timedelta | float | None
    max_restarts: int
    max_retries: int
    retry_on: registry.ExceptionName | Sequence[registry.ExceptionName]
    fatal_on: registry.ExceptionName | Sequence[registry.ExceptionName]
    downstream: str
    downstream_errors: registry.ExceptionName | Sequence[registry.ExceptionName]
    owner: str
    runbook: str
    sensitive: Sequence[str]
    max_memory: int | str | None
    needs: Mapping[str, str]
    resources: Mapping[str, int | str]
    executor: str
    concurrency: int | None
    public: bool
    serializer: Literal["json", "pickle"]
    transactional: bool | str
    keep_processes: bool
    stoppable: bool
    cancel_grace: timedelta | float | None
    max_running: int | None
    max_running_per_collection: int | None
    rate: str | None
    burst: int | None
    weight: float | None
    max_waiting: int | None
    max_wait: timedelta | float | None
    exact: bool
    on_finished: hooks.HookLike
    on_failed: hooks.HookLike
    priority: int
    collection: str
    formerly: Sequence[str]


PARAMETER_NAMES = tuple(TypeParameters.__annotations__)

OPTIONS = ("priority", "collection", "exact")

_MAY_BE_NONE = ("timeout", "retention", "max_memory", "cancel_grace", "concurrency")

# The most attempts that one loop may run at a time.
MOST_CONCURRENT = 1000

_LIMITS = (
    *("max_running", "max_running_per_collection", "rate", "burst", "weight"),
    *("max_waiting", "max_wait"),
)

_LONGEST = timedelta(days=3650).total_seconds()

_MOST, _MOST_STEPS = 1_000_000, 100


def check_handler(
    identifier: str, handler: Any, sensitive: Sequence[str] = (), concurrency: int | None = None
) -> None:
    """Check that a function can be a handler, and that it has all the arguments in ``sensitive``.

    With a ``concurrency`` it must be a coroutine function. Raises InvalidType or InvalidInputs.
    """
    if not inspect.isfunction(handler):
        raise InvalidType(
            f"task_type({identifier!r}): the handler must be a function, not {handler!r}."
        )
    for is_kind, kind, advice in _UNUSABLE:
        if is_kind(handler):
            raise InvalidType(
                f"task_type({identifier!r}): {handler.__qualname__} is {kind}, but a handler must "
                f"be a function or a coroutine function. {advice}"
            )
    if concurrency and not iscoroutinefunction(handler):
        raise InvalidType(
            f"task_type({identifier!r}): concurrency={concurrency}: {handler.__qualname__} is a "
            "plain function. Each runs in a process of its own, since nobody can end one of "
            "several in a process. Make it an async def (a decorator may hide one), or run more at "
            "a time with atpd --processes."
        )
    parameters = binding.signatures_of(handler)[0].parameters
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in sensitive:
        parameter = parameters.get(name)
        if parameter is not None and parameter.kind is parameter.VAR_KEYWORD:
            raise InvalidType(
                f"task_type({identifier!r}): sensitive={name!r}: name the arguments that "
                f"**{name} takes."
            )
        if parameter is None and not is_open:
            raise InvalidType(
                f"task_type({identifier!r}): sensitive={name!r} is not an argument of the handler."
                f"{did_you_mean(name, parameters)}"
            )


_COLLECT = "Return a list of all that it yields, or loop over the generator in a handler."

# Kinds of functions that do not run when they are called: a test for the kind, its name, advice.
_UNUSABLE = (
    (inspect.isasyncgenfunction, "an asynchronous generator", _COLLECT),
    (inspect.isgeneratorfunction, "a generator", _COLLECT),
)


def check_parameters(identifier: Any, parameters: Mapping[str, Any]) -> None:
    """Check the identifier and the parameters of ``@task_type``. Raises InvalidType."""
    label = f"task_type({identifier!r})"
    if callable(identifier):
        name = getattr(identifier, "__name__", "resize")
        raise InvalidType(
            "@task_type needs parentheses, with the identifier of the Type: "
            f"@task_type('app.{name}')."
        )
    if not is_identifier(identifier):
        raise InvalidType(
            f"{label}: an identifier is 1 to 200 letters, digits, '_', '.', ':' or '-', "
            "as in 'dem.hillshade'."
        )
    check_values(label, parameters)
    _check_formerly(label, identifier, parameters.get("formerly", ()))


def _check_formerly(label: str, identifier: str, names: Any) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidType(f"{label}: formerly must be a list of identifiers, not {names!r}.")
    for name in names:
        if not is_identifier(name):
            raise InvalidType(f"{label}: formerly={name!r} is not an identifier of a Type.")
        if name == identifier or list(names).count(name) > 1:
            raise InvalidType(f"{label}: formerly={name!r} is already a name of the Type.")


def check_values(label: str, parameters: Mapping[str, Any]) -> None:
    """Check the values of parameters, a dict by name. Raises InvalidType.

    Error messages begin with ``label``.
    """
    for name, value in parameters.items():
        if name not in PARAMETER_NAMES:
            raise InvalidType(
                f"{label} has no parameter {name!r}.{did_you_mean(name, PARAMETER_NAMES)}"
            )
        if value is not None or name not in _MAY_BE_NONE:
            _check_value(label, name, value)
    hooks.read_hook_parameters(label, parameters)
    retrying.check_named_exceptions(label, parameters)
    _check_backoff(label, parameters)
    try:
        Options(**{name: parameters[name] for name in OPTIONS if name in parameters})
        check_limits(**{name: parameters[name] for name in _LIMITS if name in parameters})
        check_text("owner", parameters.get("owner", ""))
    except (InvalidOption, InvalidLimit) as error:
        raise InvalidType(f"{label}: {error}") from None
    codec.check_format(parameters.get("serializer", codec.JSON))
    alias = parameters.get("transactional", False)
    if not isinstance(alias, bool) and not (isinstance(alias, str) and alias):
        raise InvalidType(
            f"{label}: transactional must be True, False or the alias of a database, not {alias!r}."
        )
    if parameters.get("executor"):
        _check_elsewhere(label, parameters)
    if parameters.get("concurrency"):
        _check_beside(label, parameters)
    if alias and parameters.get("stoppable"):
        raise InvalidType(
            f"{label}: stoppable and transactional exclude each other, because an attempt that is "
            "stopped inside a transaction would keep the transaction open."
        )


def _check_elsewhere(label: str, parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot be kept where an engine runs the attempts."""
    reasons = {
        "transactional": "the end of an attempt is recorded by its daemon, and not over there",
        "stoppable": "nobody can stop a process on another host",
        "keep_processes": "a process over there ends with its attempt",
    }
    for name, reason in reasons.items():
        if parameters.get(name):
            raise InvalidType(f"{label}: executor and {name} exclude each other: {reason}.")


def _check_beside(label: str, parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot be kept for an attempt that shares its process with others."""
    reasons = {
        "transactional": "a transaction would keep a connection, and others would wait for it",
        "stoppable": "a process that is stopped would stop the attempts beside it",
        "max_memory": "nobody can tell whose memory of a shared process it is",
        "keep_processes": "nobody can tell which attempt of a shared process has started another",
        "resources": "a loop has no devices of its own; limits count attempts",
        "executor": "an engine runs each attempt in a process of its own",
    }
    for name, reason in reasons.items():
        if parameters.get(name):
            raise InvalidType(f"{label}: concurrency and {name} exclude each other: {reason}.")


def _check_value(label: str, name: str, value: Any) -> None:
    if name == "backoff" and isinstance(value, (list, tuple)):
        _check_steps(label, value)
    elif name in (*DURATIONS, "cancel_grace"):
        _check_duration(label, name, value)
    elif name in COUNTS:
        _check_count(label, name, value)
    elif name == "concurrency":
        _check_count(label, name, value, least=1, most=MOST_CONCURRENT)
    elif name == "max_memory":
        _check_memory(label, value)
    elif name in ("needs", "resources"):
        _check_placement(label, name, value)
    elif name == "executor" and value not in ["", *settings.EXECUTORS]:
        known = settings.EXECUTORS
        raise InvalidType(
            f"{label}: executor={value!r} is not in ATP['EXECUTORS'].{did_you_mean(value, known)}"
        )
    elif name == "downstream":
        retrying.check_downstream(label, value)
    elif name == "sensitive":
        _check_sensitive(label, value)
    elif name == "runbook":
        _check_runbook(label, value)
    elif name in ("keep_processes", "public", "stoppable") and not isinstance(value, bool):
        raise InvalidType(f"{label}: {name} must be True or False, not {value!r}.")


def _check_sensitive(label: str, names: Any) -> None:
    is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names):
        raise InvalidType(
            f"{label}: sensitive={names!r}: must be a list of argument names, each once, as in "
            "['password']."
        )


def _check_runbook(label: str, value: Any) -> None:
    if not _is_address(value):
        raise InvalidType(
            f"{label}: runbook={value!r}: must be an address that begins with http:// or https://, "
            f"of up to {MAX_ADDRESS} characters and without spaces."
        )


def _is_address(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > MAX_ADDRESS:
        return False
    if not value.isprintable() or " " in value:
        return False
    try:
        found = urlsplit(value)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and bool(found.hostname)


def _check_backoff(label: str, parameters: Mapping[str, Any]) -> None:
    first, last = parameters.get("backoff"), parameters.get("backoff_max")
    if first is None or last is None:
        return
    if isinstance(first, (list, tuple)):
        raise InvalidType(f"{label}: backoff_max has no effect if backoff is a list of delays.")
    if as_timedelta(first) > as_timedelta(last):
        raise InvalidType(f"{label}: backoff={first!r} is longer than backoff_max={last!r}.")


def _check_duration(label: str, name: str, value: Any) -> None:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidType(f"{label}: {name} must be seconds or a timedelta, not {value!r}.")
    if not 0 <= number < _LONGEST or (name == "timeout" and number == 0):
        raise InvalidType(f"{label}: {name}={value!r} is out of range.")


def _check_steps(label: str, steps: Sequence[Any]) -> None:
    if not steps:
        raise InvalidType(f"{label}: backoff has no steps: give at least one, as in [10, 60, 600].")
    if len(steps) > _MOST_STEPS:
        raise InvalidType(
            f"{label}: backoff has {len(steps)} steps, but at most {_MOST_STEPS} are allowed."
        )
    for number, step in enumerate(steps):
        _check_duration(label, f"backoff[{number}]", step)


def _check_memory(label: str, value: Any) -> None:
    try:
        read_memory(value)
    except ValueError as error:
        raise InvalidType(f"{label}: max_memory: {error}.") from None


def _check_placement(label: str, name: str, value: Any) -> None:
    read = placement.read_needs if name == "needs" else placement.read_resources
    try:
        read(value)
    except ValueError as error:
        raise InvalidType(f"{label}: {name}: {error}.") from None


def _check_count(label: str, name: str, value: Any, least: int = 0, most: int = _MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidType(
            f"{label}: {name} must be a whole number from {least} to {most}, not {value!r}."
        )
