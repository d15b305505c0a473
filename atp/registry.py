"""Declaring Types: ``@task_type``, and the registry of what this process can run.

A daemon only ever runs functions from this registry; nothing that the
database holds names code to run (G14).
"""

import inspect
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, cached_property
from operator import attrgetter

from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS

from . import binding, codec
from .conf import did_you_mean, seconds, settings
from .exceptions import InvalidLimit, InvalidOption, InvalidType, UnknownType, UnregisteredHandler
from .options import Options
from .rates import check_limits
from .store.values import Registration
from .wording import read_size

# What the identifier of a Type looks like.
IDENTIFIER = r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,199}"


class _Setting:
    """Stands for "whatever the settings say when it is used"."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"ATP[{self.name!r}]"


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """A Type as it is declared: a handler, its parameters, and how to enqueue it.

    Calling it calls the handler, for tests and for handlers that share code.
    """

    handler: object = field(compare=False)
    identifier: str
    timeout: object = _Setting("TIMEOUT")
    max_restarts: object = _Setting("MAX_RESTARTS")
    max_retries: object = _Setting("MAX_RETRIES")
    backoff: object = _Setting("BACKOFF")
    backoff_max: object = _Setting("BACKOFF_MAX")
    retention: object = _Setting("RETENTION")
    max_memory: object = _Setting("MAX_MEMORY")
    serializer: str = codec.JSON
    transactional: bool | str = False
    keep_processes: bool = False
    stoppable: bool = False
    cancel_grace: object = None
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: float | None = None
    options: Options = field(default_factory=Options)

    # A template that is given a Type would otherwise run its handler.
    do_not_call_in_templates = True

    def __call__(self, *args, **kwargs):
        return self.handler(*args, **kwargs)

    def __str__(self):
        return self.identifier

    @property
    def signature(self):
        """The handler's signature without the context."""
        return self.signatures[0]

    @property
    def signatures(self):
        """The same, and what is plain about it: see :func:`.binding.plain_of`."""
        return _signatures(self.handler)

    @property
    def database(self):
        """The alias of the database that a transactional handler writes to; None for others."""
        return DEFAULT_DB_ALIAS if self.transactional is True else self.transactional or None

    @property
    def handler_path(self):
        """Where the handler is found, for display."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    def using(self, **changes):
        """Return this Type with other :class:`Options` for what is enqueued through it."""
        return replace(self, options=self.options.using(**changes))

    def enqueue(self, /, *args, **kwargs):
        """Enqueue one Instance with these inputs and return it, ACCEPTED.

        It is part of the caller's transaction. Raises InvalidInputs,
        NotSerializable, TooLarge, InvalidOption or DuplicateIdentifier.
        """
        return _queue().enqueue(self, *args, **kwargs)

    def enqueue_many(self, inputs, *, identifiers=None):
        """Enqueue one Instance for each of ``inputs``, all or none; returns them in order.

        Each is a mapping of keyword arguments, or a tuple of positional ones.
        ``identifiers`` gives each its own.
        """
        return _queue().enqueue_many(self, inputs, identifiers=identifiers)

    def registration(self):
        """Return the parameters as they are to be registered, settings filled in."""
        return _registration(*self._said)

    @cached_property
    def _said(self):
        return self.identifier, self.handler_path, self.serializer, *_parameters(self)


@cache
def _queue():
    from . import queue  # the one import upwards: see tests/test_layers.py

    return queue


@cache
def _signatures(handler):
    signature = binding.signature_of(handler)
    return signature, binding.plain_of(signature)


@cache
def _registration(identifier, handler, serializer, *values):
    given = {
        name: getattr(settings, value.name) if isinstance(value, _Setting) else value
        for name, value in zip(_PARAMETERS, values, strict=True)
    }
    for name in _DURATIONS:
        given[name] = seconds(given[name])
    if given["max_memory"] is not None:
        given["max_memory"] = read_size(given["max_memory"])
    return Registration(
        identifier=identifier, handler=handler[-255:], serializer=serializer, **given
    )


def _forget_settings(*, setting, **kwargs):
    """Tests change settings."""
    _registration.cache_clear()


setting_changed.connect(_forget_settings)


_DURATIONS = ("timeout", "backoff", "backoff_max", "retention")
_COUNTS = ("max_restarts", "max_retries")
_PARAMETERS = (*_DURATIONS, *_COUNTS, "max_memory")
_parameters = attrgetter(*_PARAMETERS)
_MAY_BE_NONE = ("timeout", "retention", "max_memory", "cancel_grace")
_OPTIONS = ("priority", "collection")
_LIMITS = ("max_running", "rate", "burst", "weight")
_OTHERS = ("serializer", "transactional", "keep_processes", "stoppable", "cancel_grace")
_KNOWN = (*_PARAMETERS, *_OTHERS, *_LIMITS, *_OPTIONS)
_LONGEST = timedelta(days=3650).total_seconds()
_MOST = 1_000_000
_LEAST_MEMORY = 1024 * 1024


class Registry:
    """The Types that this process has handlers for, by identifier."""

    def __init__(self):
        self._types = {}

    def __iter__(self):
        return iter(list(self._types.values()))

    def __contains__(self, identifier):
        return identifier in self._types

    def add(self, task_type):
        """Add a Type. Raises InvalidType if another function has its identifier."""
        other = self._types.get(task_type.identifier)
        if other is not None and other.handler_path != task_type.handler_path:
            raise InvalidType(
                f"Type {task_type.identifier!r} is declared twice: by {other.handler_path} "
                f"and by {task_type.handler_path}."
            )
        self._types[task_type.identifier] = task_type

    def remove(self, identifier):
        """Forget a Type; no error if there is none."""
        self._types.pop(identifier, None)

    def get(self, identifier):
        """Return the Type. Raises UnknownType, with the closest identifier that there is."""
        try:
            return self._types[identifier]
        except KeyError:
            raise UnknownType(
                f"No Type {identifier!r} is declared.{did_you_mean(identifier, self._types)}"
            ) from None

    def is_transactional(self, identifier):
        """Whether what the Type's handler writes is committed together with its end."""
        return identifier in self._types and bool(self._types[identifier].transactional)

    def is_stoppable(self, identifier):
        """Whether an attempt of the Type may be stopped wherever it is, to pause it."""
        return identifier in self._types and self._types[identifier].stoppable

    def handler_of(self, identifier):
        """Return the Type to run. Raises UnregisteredHandler."""
        if identifier not in self._types:
            raise UnregisteredHandler(f"This process has no handler for Type {identifier!r}.")
        return self._types[identifier]


registry = Registry()


def is_identifier(text):
    """Whether a Type may be called so."""
    return isinstance(text, str) and re.fullmatch(IDENTIFIER, text) is not None


def task_type(identifier, **parameters):
    """Declare the decorated function as the handler of a Type.

    Parameters (RFC 14's, and the retries of Dropbox ATF): ``timeout``,
    ``max_restarts``, ``max_retries``, ``backoff``, ``backoff_max``,
    ``retention`` and ``serializer``; times in seconds or as timedeltas,
    ``timeout`` and ``retention`` may be None, for never and for ever.
    ``max_memory`` is what an attempt may have in memory, as "512MiB" or in
    bytes, None for no limit. What is not given comes from ``settings.ATP``.
    With ``keep_processes`` what an attempt leaves running lives on until its
    worker ends. ``cancel_grace`` is the time between asking to cancel a running
    attempt and killing it. ``priority`` and ``collection`` become the defaults of
    :class:`Options`.

    ``max_running``, ``rate``, ``burst`` and ``weight`` are limits over all daemons, until an
    operator sets others: see :func:`atp.queue.limit`.

    With ``transactional=True`` the handler runs in a transaction on the default
    database, and what it writes there is committed together with its Response and
    FINISHED, or not at all (G7); so the queue has to be in that database. Where
    both have another, name it: ``transactional="alias"``.

    Raises InvalidType.
    """
    _check_parameters(identifier, parameters)

    def decorate(handler):
        _check_handler(identifier, handler)
        given = dict(parameters)
        defaults = {name: given.pop(name) for name in _OPTIONS if name in given}
        declared = TaskType(
            handler=handler, identifier=identifier, options=Options(**defaults), **given
        )
        _ = declared.signatures
        registry.add(declared)
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            object.__setattr__(declared, name, getattr(handler, name))
        return declared

    return decorate


def _check_handler(identifier, handler):
    """Refuse what cannot be run as a handler, before every attempt of it fails."""
    if not inspect.isfunction(handler):
        raise InvalidType(f"task_type({identifier!r}): a handler is a function, not {handler!r}.")
    for is_kind, kind in (
        (inspect.iscoroutinefunction, "a coroutine"),
        (inspect.isasyncgenfunction, "an asynchronous generator"),
        (inspect.isgeneratorfunction, "a generator"),
    ):
        if is_kind(handler):
            raise InvalidType(
                f"task_type({identifier!r}): {handler.__qualname__} is {kind}; a handler is a "
                "plain function. Call asgiref's async_to_sync or asyncio.run in it."
            )


def _check_parameters(identifier, parameters):
    told = f"task_type({identifier!r})"
    if not is_identifier(identifier):
        raise InvalidType(
            f"{told}: an identifier is 1 to 200 letters, digits, '_', '.', ':' or '-', "
            "as in 'dem.hillshade'."
        )
    for name, value in parameters.items():
        if name not in _KNOWN:
            raise InvalidType(f"{told} has no parameter {name!r}.{did_you_mean(name, _KNOWN)}")
        if value is None and name in _MAY_BE_NONE:
            continue
        if name in (*_DURATIONS, "cancel_grace"):
            _check_duration(told, name, value)
        elif name in _COUNTS:
            _check_count(told, name, value)
        elif name == "max_memory":
            _check_memory(told, value)
        elif name in ("keep_processes", "stoppable") and not isinstance(value, bool):
            raise InvalidType(f"{told}: {name} must be True or False, not {value!r}.")
    first, last = parameters.get("backoff"), parameters.get("backoff_max")
    if first is not None and last is not None and seconds(first) > seconds(last):
        raise InvalidType(f"{told}: backoff={first!r} is longer than backoff_max={last!r}.")
    try:
        Options(**{name: parameters[name] for name in _OPTIONS if name in parameters})
        check_limits(**{name: parameters[name] for name in _LIMITS if name in parameters})
    except (InvalidOption, InvalidLimit) as error:
        raise InvalidType(f"{told}: {error}") from None
    codec.check_format(parameters.get("serializer", codec.JSON))
    alias = parameters.get("transactional", False)
    if not isinstance(alias, bool) and not (isinstance(alias, str) and alias):
        raise InvalidType(
            f"{told}: transactional must be True, False or the alias of a database, not {alias!r}."
        )
    if alias and parameters.get("stoppable"):
        raise InvalidType(
            f"{told}: stoppable and transactional exclude each other: an attempt that is stopped "
            "inside a transaction keeps it open."
        )


def _check_duration(told, name, value):
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidType(f"{told}: {name} must be seconds or a timedelta, not {value!r}.")
    if not 0 <= number < _LONGEST or (name == "timeout" and number == 0):
        raise InvalidType(f"{told}: {name}={value!r} is out of range.")


def _check_memory(told, value):
    try:
        size = read_size(value)
    except ValueError as error:
        raise InvalidType(f"{told}: max_memory: {error}.") from None
    if size < _LEAST_MEMORY:
        raise InvalidType(
            f"{told}: max_memory={value!r} is less than any process has; say '{value}MiB' if "
            "that is what is meant."
        )


def _check_count(told, name, value):
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise InvalidType(
            f"{told}: {name} must be a whole number from 0 to {_MOST}, not {value!r}."
        )
