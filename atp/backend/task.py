"""ATPTask, the registry of declared tasks, and ``OPTIONS`` in TASKS with its system checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from django.apps import apps
from django.core import checks

from ..authoring.parameters import PARAMETER_NAMES, check_values
from ..exceptions import ATPError, InvalidOption
from ..options import OptionValues, check_text
from ..text import did_you_mean
from .frameworks import DEFAULT_QUEUE_NAME, Task

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


# The system checks of an entry in TASKS.


def check_installation(alias: str) -> Iterator[checks.CheckMessage]:
    """Yield an error if ATP is not in INSTALLED_APPS, because then ATP's own checks do not run."""
    if not apps.is_installed("atp"):
        yield checks.Error(f"TASKS[{alias!r}]: {NOT_INSTALLED}", id="atp.E011")


def messages(alias: str, queues: Any, options: BackendOptions) -> Iterator[checks.CheckMessage]:
    """Yield system check messages about OPTIONS and QUEUES in an entry of TASKS."""
    for problem in options.problems:
        yield checks.Error(problem, id="atp.E010")
    for problem in queue_problems(f"TASKS[{alias!r}]['QUEUES']", queues):
        yield checks.Error(
            problem,
            hint="ATP uses the name as a collection: one line of at most 200 printable characters.",
            id="atp.E012",
        )
    for pattern, hint in options.unmatched(paths()):
        yield checks.Warning(
            f"{options.label}['types'][{pattern!r}] matches no task.{hint}",
            hint="ATP looks for tasks in the tasks.py of each installed app, and in the modules "
            "that OPTIONS['modules'] lists.",
            id="atp.W013",
        )


# The tasks that this process declares.

NOT_INSTALLED = "ATPBackend needs ATP's tables: add 'atp' to INSTALLED_APPS."


class Declared(NamedTuple):
    """A declared task, and the Type that runs it."""

    task: Any
    task_type: TaskType


# The key is the Type's identifier, which is the path of the task's function.
_declared: dict[str, Declared] = {}
# The current identifiers by former identifiers.
_current: dict[str, str] = {}


def find(identifier: str) -> Declared | None:
    """Return the declared task for a current or former Type identifier, or None."""
    return _declared.get(identifier) or _declared.get(_current.get(identifier, ""))


def paths() -> list[str]:
    """Return the dotted paths of all declared tasks."""
    return list(_declared)


def add(path: str, task: Any, task_type: TaskType) -> None:
    """Register a task under its dotted path, with the Type that runs it."""
    _declared[path] = Declared(task, task_type)
    _current.update(dict.fromkeys(task_type.formerly, path))


def as_enqueued(task: Any, **facts: Any) -> Any:
    """Return a copy of a declared task with the values of one Instance, for its TaskResult.

    The copy is not validated, because the Instance exists even if today's settings forbid it.
    """
    copy = object.__new__(type(task))
    for each in fields(task):
        value = facts.get(each.name, getattr(task, each.name))
        if each.name in _UNSET_IF_EMPTY and not value:
            value = UNSET
        object.__setattr__(copy, each.name, value)
    return copy


_UNSET_IF_EMPTY = ("identifier", "start_before", "created_by")


# ATPTask: a task with the parameters of a Type, and the options of an enqueue.


class Unset(Enum):
    """The value of a parameter that was not passed, because None can be a real value."""

    UNSET = "not given"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET

# The parameters that a task of django.tasks has already, with their names there.
STANDARD = {"priority": "priority", "collection": "queue_name", "run_after": "run_after"}
# The parameters of a Type that @task() takes.
PARAMETERS = tuple(name for name in PARAMETER_NAMES if name not in STANDARD)
# The options of an enqueue that using() takes in addition to its standard arguments.
OPTIONS = tuple(
    name for name in OptionValues.__annotations__ if name not in (*STANDARD, *PARAMETERS)
)

# Django 6.0 has these defaults only in its decorator.
_DEFAULTS = {
    "priority": 0,
    "backend": "default",
    "queue_name": DEFAULT_QUEUE_NAME,
    "run_after": None,
    "takes_context": False,
}

_Base: Any = make_dataclass(
    "_Base",
    [
        *((name, Any, field(default=value)) for name, value in _DEFAULTS.items()),
        *((name, Any, field(default=UNSET)) for name in (*PARAMETERS, *OPTIONS)),
    ],
    bases=(Task,),
    frozen=True,
    slots=True,
    kw_only=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTask(_Base):
    """A task of ``django.tasks`` with ATPBackend as its backend.

    ``@task(timeout=60, max_retries=3)`` accepts the parameters of a Type, and :meth:`using` accepts
    the options of an enqueue. An attribute that was not set is UNSET.
    """

    def using(self, **changes: Any) -> Any:
        """Return a copy of this task with other enqueue options.

        The method accepts the arguments that ``django.tasks`` defines, and from
        :class:`~atp.options.Options` ``identifier``, ``existing``, ``unique``, ``start_before`` and
        ``created_by``. Raises TypeError for any other name.
        """
        options = {name: changes.pop(name) for name in OPTIONS if name in changes}
        for name in changes:
            if name not in _USING_ARGUMENTS:
                raise TypeError(f"using() has no argument {name!r}.{_suggest_argument(name)}")
        task = Task.using(self, **changes)
        return replace(task, **options) if options else task

    @property
    def parameters(self) -> dict[str, Any]:
        """The Type parameters that were passed to ``@task()``, by name."""
        return {name: v for name in PARAMETERS if (v := getattr(self, name)) is not UNSET}

    @property
    def options(self) -> dict[str, Any]:
        """The enqueue options that were passed to ``using()``, by name."""
        return {name: v for name in OPTIONS if (v := getattr(self, name)) is not UNSET}


_USING_ARGUMENTS = ("priority", "queue_name", "run_after", "backend")


def _suggest_argument(name: str) -> str:
    if name in PARAMETERS:
        return f" It is a Type parameter, so pass it to the decorator: @task({name}=…)."
    if name in STANDARD:
        return f" Here it is called {STANDARD[name]!r}."
    return did_you_mean(name, (*_USING_ARGUMENTS, *OPTIONS))


# ``OPTIONS`` in an entry of the setting TASKS: values and problems.

KEYS = (*PARAMETERS, "types", "modules")
# Parameters that have a meaning only together with another one.
_REQUIRES = {"burst": "rate", "downstream_errors": "downstream"}


class BackendOptions:
    """Default Type parameters from ``OPTIONS``, for all tasks and by patterns of dotted paths.

    ``label`` names the setting in messages. ``problems`` lists sentences about invalid values,
    which are not used.
    """

    def __init__(self, label: str, value: Any) -> None:
        self.label = label
        self.problems: list[str] = []
        self.modules: list[str] = []
        self.patterns: dict[str, dict[str, Any]] = {}
        options = self._read_mapping(label, value)
        for name in options:
            if name not in KEYS:
                self.problems.append(f"{label} has no key {name!r}.{_suggest_key(name, KEYS)}")
        defaults = {name: each for name, each in options.items() if name in PARAMETERS}
        self.defaults = self._valid_parameters(label, defaults)
        where = f"{label}['types']"
        for pattern, values in self._read_mapping(where, options.get("types", {})).items():
            self._add(f"{where}[{pattern!r}]", pattern, values)
        self._read_modules(options.get("modules", ()))

    def of(self, path: str) -> dict[str, Any]:
        """Return the parameters for the task at this path. Later patterns override earlier ones."""
        parameters = dict(self.defaults)
        for pattern, values in self.patterns.items():
            if fnmatchcase(path, pattern):
                parameters |= values
        return parameters

    def unmatched(self, paths: list[str]) -> Iterator[tuple[str, str]]:
        """Yield each pattern that matches no path, with a hint that suggests the closest path."""
        for pattern in self.patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                stem = pattern.rstrip("*").rstrip(".")
                modules = {path.rpartition(".")[0] for path in paths}
                yield pattern, did_you_mean(stem, [*modules, *paths])

    def _add(self, label: str, pattern: Any, values: Any) -> None:
        """Add parameters for the tasks whose dotted paths match a pattern."""
        if not isinstance(pattern, str) or not pattern:
            self.problems.append(f"{label}: a pattern must be text, such as 'wagtail.tasks.*'.")
            return
        known = {}
        for name, value in self._read_mapping(label, values).items():
            if name in PARAMETERS:
                known[name] = value
            else:
                hint = _suggest_key(name, PARAMETERS)
                self.problems.append(f"{label} has no key {name!r}.{hint}")
        # A task that matches this pattern may match each earlier one too.
        general = dict(self.defaults)
        for earlier in self.patterns.values():
            general |= earlier
        self.patterns[pattern] = self._valid_parameters(label, known, general)

    def _valid_parameters(
        self, label: str, values: dict[str, Any], general: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the valid parameters, and add a sentence to ``problems`` for each invalid one.

        ``general`` contains the parameters that apply unless ``values`` overrides them.
        """
        valid = {}
        for name, value in values.items():
            if self._is_valid(label, {name: value}, {**general, **values}):
                valid[name] = value
        return valid if self._is_valid(label, valid, {**general, **valid}) else {}

    def _is_valid(self, label: str, values: dict[str, Any], all: Mapping[str, Any]) -> bool:
        required = {_REQUIRES[name] for name in values if name in _REQUIRES}
        try:
            check_values(label, {name: all[name] for name in required if name in all} | values)
        except ATPError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return False
        return True

    def _read_modules(self, value: Any) -> None:
        label = f"{self.label}['modules']"
        if not isinstance(value, (list, tuple)):
            self.problems.append(f"{label} must be a list of names of modules, not {value!r}.")
            return
        for name in value:
            if not _is_module(name):
                self.problems.append(f"{label}: there is no module {name!r}.")
            else:
                self.modules.append(name)

    def _read_mapping(self, label: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self.problems.append(f"{label} must be a dictionary, not {value!r}.")
        return {}


def queue_problems(label: str, queues: Any) -> Iterator[str]:
    """Yield a problem for each queue name that is not valid as the name of a collection."""
    for name in sorted(queues, key=str):
        try:
            check_text("a queue", name, empty=False)
        except InvalidOption as error:
            yield f"{label}: {error}"


def _is_module(name: Any) -> bool:
    try:
        return isinstance(name, str) and find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _suggest_key(name: Any, known: tuple[str, ...]) -> str:
    if name in STANDARD:
        return f" Set {STANDARD[name]!r} on the task itself."
    return did_you_mean(name, known)
