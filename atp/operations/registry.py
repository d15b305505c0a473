"""The Types that this process declares: their Declarations, their hooks, and the registry."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import import_module
from inspect import Signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
)

from django.apps import apps
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS

from ..conf import settings
from ..exceptions import ATPError, InvalidType, UnknownType, UnregisteredHandler
from ..models import Type
from ..options import Options, OptionValues
from ..payload import binding, codec
from ..store.values import Hook, Registration
from ..text import as_timedelta, did_you_mean, read_size
from .base import needs_tables

# The parameters of a handler after its context, and the type of its result.
P = ParamSpec("P")
R = TypeVar("R")

# An exception's class, or its dotted name.
ExceptionName: TypeAlias = type[BaseException] | str

DURATIONS = ("timeout", "backoff", "backoff_max", "retention")
COUNTS = ("max_restarts", "max_retries")
# The parameters in a Type's Registration.
PARAMETERS = (
    *(*DURATIONS, *COUNTS, "max_memory", "downstream", "owner", "runbook", "sensitive"),
    *("needs", "resources"),
)

# ATP's own Types, each with the module that declares it. The module is imported at the first use.
DELETE_TYPE = "atp.delete"
OWN_TYPES = dict.fromkeys(("atp.redrive", "atp.cancel", DELETE_TYPE), "atp.deadletters.tasks")
# Only operations and hooks enqueue these: a user who may enqueue may not also delete Instances, or
# send webhooks.
_INTERNAL = {*OWN_TYPES, "atp.webhook", "atp.callback", "atp.progress"}
# The pattern of a Type's identifier.
IDENTIFIER = r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,199}"

# A sentence about the modules that daemons import, for messages about Types declared elsewhere.
DAEMON_IMPORTS = (
    "Daemons import the modules called tasks.py of installed apps, those that OPTIONS['modules'] "
    "in the setting TASKS names, and what these import"
)


# Declarations, and the Registrations that follow from them and the settings.


# Settings are compared and hashed by identity. That is quick, and each enqueue uses them as keys to
# find its Registration.
@dataclass(frozen=True, eq=False)
class Setting:
    """A default value that is read from ``settings.ATP[name]`` at the time of use."""

    name: str

    def __repr__(self) -> str:
        return f"ATP[{self.name!r}]"


@cache
def registration_of(identifier: str, handler: str, serializer: str, *values: Any) -> Registration:
    """Return a Type's Registration, which has values from settings in place of each Setting.

    ``values`` are the values of PARAMETERS in that order, followed by the hooks.
    """
    *values, hooks = values
    parameters = {
        name: getattr(settings, value.name) if isinstance(value, Setting) else value
        for name, value in zip(PARAMETERS, values, strict=True)
    }
    if isinstance(parameters["backoff"], tuple):
        # The row has only the first delay and the longest; daemons read all from the declaration.
        steps = parameters["backoff"]
        parameters["backoff"], parameters["backoff_max"] = steps[0], max(steps)
    for name in DURATIONS:
        parameters[name] = as_timedelta(parameters[name])
    if parameters["max_memory"] is not None:
        parameters["max_memory"] = read_size(parameters["max_memory"])
    parameters["sensitive"] = list(parameters["sensitive"]) or None
    for name in ("needs", "resources"):
        parameters[name] = dict(parameters[name]) or None
    return Registration(
        identifier=identifier,
        handler=handler[-255:],
        serializer=serializer,
        hooks=[spec.hook.entry() for spec in hooks] or None,
        hook_types=hook_types(hooks),
        **parameters,
    )


def _forget_settings(*, setting: str, **kwargs: Any) -> None:
    """Clear the cache of Registrations after a test has changed a setting."""
    registration_of.cache_clear()


setting_changed.connect(_forget_settings)


@dataclass(frozen=True)
class HookSpec:
    """A hook with the declared Type that it enqueues.

    ``setting`` names the setting that declares the hook; it is empty for hooks declared in code.
    """

    hook: Hook
    type: Declaration = field(compare=False)
    setting: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Declaration(Generic[P, R]):
    """A Type as code declares it: the handler, and the parameters of ``@task_type``."""

    handler: Callable[Concatenate[Any, P], R] = field(compare=False)
    identifier: str
    timeout: timedelta | float | Setting | None = Setting("TIMEOUT")
    max_restarts: int | Setting = Setting("MAX_RESTARTS")
    max_retries: int | Setting = Setting("MAX_RETRIES")
    retry_on: tuple[ExceptionName, ...] = ()
    fatal_on: tuple[ExceptionName, ...] = ()
    downstream: str = ""
    downstream_errors: tuple[ExceptionName, ...] = ()
    owner: str = ""
    runbook: str = ""
    sensitive: tuple[str, ...] = ()
    backoff: timedelta | float | tuple[timedelta, ...] | Setting = Setting("BACKOFF")
    backoff_max: timedelta | float | Setting = Setting("BACKOFF_MAX")
    retention: timedelta | float | Setting | None = Setting("RETENTION")
    max_memory: int | str | Setting | None = Setting("MAX_MEMORY")
    needs: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    executor: str = ""
    concurrency: int | None = None
    public: bool = False
    serializer: str = codec.JSON
    transactional: bool | str = False
    keep_processes: bool = False
    stoppable: bool = False
    cancel_grace: timedelta | float | None = None
    max_running: int | None = None
    max_running_per_collection: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: float | None = None
    max_waiting: int | None = None
    max_wait: timedelta | float | None = None
    on_finished: tuple[HookSpec, ...] = ()
    on_failed: tuple[HookSpec, ...] = ()
    options: Options = field(default_factory=Options)
    formerly: tuple[str, ...] = ()
    adapters: list[binding.Adapter] = field(default_factory=list, compare=False, repr=False)

    def __str__(self) -> str:
        return self.identifier

    @property
    def signature(self) -> Signature:
        """The handler's signature without the context."""
        return self.signatures[0]

    @property
    def signatures(self) -> binding.Signatures:
        """The handler's signature without the context, and the names of its parameters.

        See :func:`.binding.signatures_of`.
        """
        return binding.signatures_of(self.handler)

    @property
    def fingerprint(self) -> str:
        """A short hash of the inputs that the handler accepts; see :func:`.binding.fingerprint`."""
        return binding.fingerprint(self.signature, self.serializer, self.adapters)

    @property
    def names(self) -> tuple[str, ...]:
        """The current identifier of the Type, followed by its former identifiers."""
        return self.identifier, *self.formerly

    @property
    def as_called(self) -> bool:
        """True if stored inputs keep positional arguments positional.

        The handler decides this with an attribute of the same name.
        """
        return getattr(self.handler, "as_called", False)

    @property
    def is_tailer(self) -> bool:
        """True if the Type is a tailer, whose attempts read from a source.

        The handler decides this with an attribute of the same name.
        """
        return getattr(self.handler, "is_tailer", False)

    @property
    def database(self) -> str | None:
        """The database alias for the handler's transaction; None if there is no transaction."""
        return DEFAULT_DB_ALIAS if self.transactional is True else self.transactional or None

    @property
    def handler_path(self) -> str:
        """The dotted name of the handler function, for display."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    @property
    def backoff_steps(self) -> tuple[timedelta, ...]:
        """The delays before retries, of which the last repeats.

        Empty if the delay doubles before each retry instead.
        """
        return self.backoff if isinstance(self.backoff, tuple) else ()

    def with_options(self, **changes: Unpack[OptionValues]) -> Self:
        """Return a copy of this declaration with changed :class:`Options` for enqueues."""
        return replace(self, options=self.options.using(**changes))

    def registration(self) -> Registration:
        """Return the :class:`Registration` of the Type, which the store writes to the database."""
        found = registration_of(*self._parameter_values, declared_hooks.of(self))
        if self.formerly:
            found = replace(found, formerly=self.formerly)
        hooks = self.options.hooks
        if not hooks:
            return found
        return replace(found, hook_types=(*found.hook_types, *hook_types(hooks)))

    @cached_property
    def _parameter_values(self) -> tuple[Any, ...]:
        values = (getattr(self, name) for name in PARAMETERS)
        return self.identifier, self.handler_path, self.serializer, *values


# The hooks that code declares: for single Types, and for patterns of identifiers.

# A pattern for identifiers of Types, as "dem.*", and the hook for the Types that match it.
Pattern = tuple[str, HookSpec]


class DeclaredHooks:
    """The hooks that this process declares, for single Types and for patterns."""

    def __init__(self) -> None:
        # The hook is part of the key, so a module that is imported again adds no hook twice.
        self._patterns: dict[tuple[str, Hook], HookSpec] = {}
        self._sources: list[Callable[[], Iterable[Pattern]]] = []
        # A cache, since each enqueue needs them: the hooks by the identifier of a Type.
        self._hooks: dict[str, tuple[HookSpec, ...]] = {}
        setting_changed.connect(self.forget)

    def add(self, pattern: str, spec: HookSpec) -> None:
        """Add a hook for every Type whose identifier matches a pattern."""
        self._patterns[pattern, spec.hook] = spec
        self.forget()

    def add_source(self, source: Callable[[], Iterable[Pattern]]) -> None:
        """Add a function that returns pairs of a pattern and a hook, for example from settings."""
        if source not in self._sources:
            self._sources.append(source)
        self.forget()

    def forget(self, **kwargs: object) -> None:
        """Clear the cache of hooks by Type after Types, patterns or settings have changed."""
        self._hooks.clear()

    def patterns(self) -> Iterator[Pattern]:
        """Yield pairs of each declared pattern and its hook."""
        yield from ((pattern, spec) for (pattern, _), spec in self._patterns.items())
        for source in self._sources:
            yield from source()

    def of(self, task_type: Declaration) -> tuple[HookSpec, ...]:
        """Return the hooks that a Type declares, and those whose pattern matches the Type."""
        name = task_type.identifier
        found = self._hooks.get(name)
        if found is None:
            specs = [*task_type.on_finished, *task_type.on_failed]
            patterns = list(self.patterns())
            if patterns and name not in self._find_hook_types(patterns):
                specs += [spec for pattern, spec in patterns if _matches(pattern, task_type)]
            found = self._hooks[name] = tuple(dict.fromkeys(specs))
        return found

    def unmatched(self) -> Iterator[tuple[str, HookSpec, list[str]]]:
        """Yield each pattern that matches no declared Type, with its hook and excluded Types.

        The excluded Types are the identifiers that fit the pattern, but which patterns skip, such
        as those of hooks.
        """
        patterns = list(self.patterns())
        hooks = self._find_hook_types(patterns)
        for pattern, spec in patterns:
            found = [each for each in registry if fnmatchcase(each.identifier, pattern)]
            if all(each.identifier in hooks or not _matches(pattern, each) for each in found):
                yield pattern, spec, [each.identifier for each in found]

    @staticmethod
    def _find_hook_types(patterns: list[Pattern]) -> set[str]:
        """Return the identifiers of all Types that are hooks. Patterns do not match these Types."""
        found = {spec.hook.type for _, spec in patterns}
        for each in registry:
            found |= {spec.hook.type for spec in (*each.on_finished, *each.on_failed)}
        return found


def _matches(pattern: str, type: Declaration) -> bool:
    """Return True if a pattern matches a Type.

    Only the whole identifier matches a tailer or one of ATP's own Types, because a tailer has an
    attempt every few seconds, and ATP's own Types carry out operations that an operator started.
    """
    if pattern == type.identifier:
        return True
    is_left_out = type.is_tailer or is_internal(type.identifier)
    return not is_left_out and fnmatchcase(type.identifier, pattern)


def hook_types(specs: Iterable[HookSpec]) -> tuple[Registration, ...]:
    """Return one Registration for each Type that these hooks enqueue."""
    types = {spec.hook.type: spec.type for spec in specs}
    return tuple(type.registration() for type in types.values())


declared_hooks = DeclaredHooks()


# The registry: the Types that this process declares, by identifier.


class Registry:
    """The Types for which this process has handlers, by identifier.

    A daemon runs only handlers from this registry, so nobody can make it run other code by writing
    to the database (G14).
    """

    def __init__(self) -> None:
        self._types: dict[str, Declaration] = {}
        # The current identifier of a Type, by each of its former identifiers.
        self._former: dict[str, str] = {}
        # By identifier: the execution of the module that declared the Type; see _module_run().
        self._runs: dict[str, object] = {}
        # The Types that were declared after Django had started.
        self._late: set[str] = set()
        self._readers: list[Callable[[object], Declaration | None]] = []
        # A cache by identifier, which each attempt reads: True if FINISHED Instances are kept.
        self._kept: dict[str, bool] = {}
        setting_changed.connect(self._clear_kept)

    def _clear_kept(self, **kwargs: Any) -> None:
        self._kept.clear()

    def __iter__(self) -> Iterator[Declaration]:
        return iter(list(self._types.values()))

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._types or identifier in self._former or identifier in OWN_TYPES

    def is_former(self, identifier: str) -> bool:
        """Return True if a declared Type formerly had this identifier."""
        return identifier in self._former

    def names(self) -> list[str]:
        """Return the current and the former identifiers of all declared Types."""
        return [*self._types, *self._former]

    def _find(self, identifier: str) -> Declaration | None:
        return self._types.get(self._former.get(identifier, identifier))

    def add(self, task_type: Declaration) -> None:
        """Add a Type. Raises InvalidType if another Type has, or formerly had, one of its names.

        A module that is imported again may declare its Types again.
        """
        other = self._types.get(task_type.identifier)
        if other is not None and other.handler_path != task_type.handler_path:
            raise InvalidType(
                f"Type {task_type.identifier!r} is declared twice: by {other.handler_path} "
                f"and by {task_type.handler_path}."
            )
        run = _module_run(task_type.handler)
        if other is not None and run is not None and run is self._runs.get(task_type.identifier):
            _refuse_second(task_type, other)
        self._check_names(task_type)
        is_late = apps.ready and (other is None or task_type.identifier in self._late)
        self.remove(task_type.identifier)
        self._types[task_type.identifier] = task_type
        self._former |= dict.fromkeys(task_type.formerly, task_type.identifier)
        self._runs[task_type.identifier] = run
        if is_late:
            self._late.add(task_type.identifier)

    def _check_names(self, task_type: Declaration) -> None:
        """Raise InvalidType if another Type has, or formerly had, a name of this Type."""
        for name in task_type.names:
            owner = self._former.get(name, name)
            if owner in self._types and owner != task_type.identifier:
                what = "is declared" if owner == name else f"is a former name of {owner!r}"
                label = f"task_type({task_type.identifier!r})"
                where = "" if name == task_type.identifier else f": formerly={name!r}"
                raise InvalidType(f"{label}{where}: {name!r} {what} already.")

    def remove(self, identifier: str) -> None:
        """Remove a Type, if it is declared."""
        self._types.pop(identifier, None)
        self._late.discard(identifier)
        self._former = {old: new for old, new in self._former.items() if new != identifier}
        self._kept.clear()

    def is_reached(self, identifier: str) -> bool:
        """Return True if daemons that run the same code also declare the Type.

        Daemons import only the modules that Django imports when it starts. A module that is
        imported later, for example by a view, declares its Types in this process alone.
        """
        name = self._former.get(identifier, identifier)
        return identifier in _INTERNAL or (name in self._types and name not in self._late)

    def unreached(self) -> list[Declaration]:
        """Return the Types that this process declares, but daemons with the same code do not."""
        return [each for each in self if not self.is_reached(each.identifier)]

    def get(self, identifier: str) -> Declaration:
        """Return the Type with this current or former identifier.

        Raises UnknownType, which suggests the closest identifier.
        """
        if identifier in OWN_TYPES and identifier not in self._types:
            self.declare_own()
        found = self._find(identifier)
        if found is None:
            hint = did_you_mean(identifier, self._types)
            raise UnknownType(f"No Type {identifier!r} is declared.{hint}")
        return found

    def add_reader(self, reader: Callable[[object], Declaration | None]) -> None:
        """Add a function that returns the Type for an object, such as a task of ``django.tasks``.

        The function returns None for an object that has no Type.
        """
        if reader not in self._readers:
            self._readers.append(reader)

    def read(self, value: object) -> Declaration | None:
        """Return the object if it is a Type, or the Type that a reader returns for it, or None."""
        # The row of a registered Type also has a handler, as text.
        if callable(getattr(value, "handler", None)):
            return value  # type: ignore[return-value]
        found = (reader(value) for reader in self._readers)
        return next((each for each in found if each is not None), None)

    def declare_own(self) -> None:
        """Import the modules that declare ATP's own Types, which every daemon serves."""
        for module in set(OWN_TYPES.values()):
            import_module(module)

    def is_transactional(self, identifier: str) -> bool:
        """Return True if the Type's handler runs in a transaction that also records its end."""
        # As below, this is _find() without its call: it is done for every attempt.
        found = self._types.get(self._former.get(identifier, identifier))
        return found is not None and bool(found.transactional)

    def runs_in_loops(self, identifier: str) -> bool:
        """Return True if attempts of the Type run beside each other in loops."""
        found = self._find(identifier)
        return found is not None and bool(found.concurrency)

    def is_stoppable(self, identifier: str) -> bool:
        """Return True if an attempt of the Type can be paused at any point in its handler."""
        found = self._find(identifier)
        return found is not None and found.stoppable

    def backoff_steps(self, identifier: str) -> tuple[timedelta, ...]:
        """Return the delays before the Type's retries; empty if the delay doubles instead."""
        found = self._find(identifier)
        return () if found is None else found.backoff_steps

    def keeps(self, identifier: str) -> bool:
        """Return True if FINISHED Instances of the Type are kept for any length of time."""
        kept = self._kept.get(identifier)
        if kept is None:
            declared = self._find(identifier)
            kept = declared is None or declared.registration().retention != timedelta(0)
            self._kept[identifier] = kept
        return kept

    def downstream(self, identifier: str) -> str:
        """Return the name of the downstream service that the Type calls; empty if there is none."""
        found = self._find(identifier)
        return "" if found is None else found.downstream

    def handler_of(self, identifier: str) -> Declaration:
        """Return the declared Type with this identifier, current or former.

        Raises UnregisteredHandler if this process does not declare the Type.
        """
        found = self._types.get(self._former.get(identifier, identifier))
        if found is None:
            raise UnregisteredHandler(f"This process has no handler for Type {identifier!r}.")
        return found


registry = Registry()


def _module_run(handler: Callable[..., Any]) -> object:
    """Return an object that identifies one execution of the handler's module; None in a shell.

    If a module is imported twice, it declares its Types in two different executions.
    """
    return getattr(inspect.unwrap(handler), "__globals__", {}).get("__spec__")


def _refuse_second(task_type: Declaration, other: Declaration) -> None:
    """Raise InvalidType if one module declares two functions of the same name as this Type."""
    codes = [inspect.unwrap(each.handler).__code__ for each in (other, task_type)]
    first, second = [(code.co_filename, code.co_firstlineno) for code in codes]
    if first != second:
        raise InvalidType(
            f"Type {task_type.identifier!r} is declared twice by {task_type.handler_path}: "
            f"in line {first[1]} and in line {second[1]} of {second[0]}."
        )


def internal_types() -> list[str]:
    """Return the identifiers of the Types that belong to ATP."""
    return list(_INTERNAL)


def is_internal(identifier: str) -> bool:
    """Return True if the Type belongs to ATP, so that only ATP itself enqueues its Instances."""
    return identifier in _INTERNAL


def is_enqueueable(identifier: str) -> bool:
    """Return True if this process declares the Type and the Type does not belong to ATP."""
    return identifier in registry and not is_internal(identifier)


def is_identifier(text: object) -> bool:
    """Return True if the text is a valid identifier for a Type."""
    return isinstance(text, str) and re.fullmatch(IDENTIFIER, text) is not None


# Finding Types: in the database, and among the declared ones.

if TYPE_CHECKING:
    # A row of a Type, its declaration, or its identifier.
    TypeLike: TypeAlias = str | Type | Declaration


@needs_tables
def get_type(identifier: str) -> Type:
    """Return the database row of the Type with this identifier.

    Raises UnknownType, which suggests the closest identifier.
    """
    types = Type.objects.using(settings.DATABASE)
    # No query for an invalid identifier: the database may not accept its text.
    found = types.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = types.values_list("identifier", flat=True)
        raise UnknownType(f"No Type {identifier!r} is registered.{did_you_mean(identifier, known)}")
    return found


def sensitive_names(type: Type) -> frozenset[str]:
    """Return the names of a Type's sensitive arguments, from its row and its declaration together.

    Right after a deploy, the row or the declaration can lack an argument that the other has.
    """
    found = set(type.sensitive or ())
    if type.identifier in registry and not is_internal(type.identifier):
        found |= set(registry.get(type.identifier).sensitive)
    return frozenset(found)


def types_without_retention(identifier: str | None = None) -> list[str]:
    """Return the identifiers of the Types whose ended Instances are kept forever.

    If ``identifier`` is given, only that Type is checked.
    """
    types = Type.objects.using(settings.DATABASE).filter(retention__isnull=True)
    types = types if identifier is None else types.filter(identifier=identifier)
    return list(types.values_list("identifier", flat=True))


class DjangoTask(Protocol):
    """A task of ``django.tasks`` whose backend is ATP's."""

    @property
    def module_path(self) -> str: ...


def declared_type(value: object, label: str, error: type[ATPError]) -> Declaration:
    """Return ``value`` if it is a declared Type, or the Type of a task of ``django.tasks``.

    Raises ``error`` if ``value`` is neither. ``label`` names the value in the error message.
    """
    found = registry.read(value)
    if found is not None:
        return found
    advice = " Give the Type itself, not its name." if isinstance(value, str) else ""
    if isinstance(getattr(value, "module_path", None), str):
        advice = " A task of django.tasks is a Type if its backend is ATPBackend."
    if isinstance(value, Type):
        advice = f" This is its row: give atp.queue.declared({value.identifier!r})."
    raise error(f"{label} must be a Type that @task_type has declared, not {value!r}.{advice}")
