"""ATPTask, the tasks that are declared, OPTIONS of the setting TASKS, and their checks."""

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

from ..authoring.parameters import KNOWN, check_values
from ..exceptions import ATPError, InvalidOption
from ..options import OptionValues, check_text
from ..text import did_you_mean
from .frameworks import DEFAULT_QUEUE_NAME, Task

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


# The system checks of an entry in TASKS.


def of_installation(alias: str) -> Iterator[checks.CheckMessage]:
    """Yield an error if ATP is not installed: then none of its own checks is run."""
    if not apps.is_installed("atp"):
        yield checks.Error(f"TASKS[{alias!r}]: {NOT_INSTALLED}", id="atp.E011")


def messages(alias: str, queues: Any, given: BackendOptions) -> Iterator[checks.CheckMessage]:
    """Yield the messages about the OPTIONS and the QUEUES of an entry."""
    for problem in given.problems:
        yield checks.Error(problem, id="atp.E010")
    for problem in queue_problems(f"TASKS[{alias!r}]['QUEUES']", queues):
        yield checks.Error(
            problem,
            hint="A queue is a collection of ATP: a line of at most 200 printable characters.",
            id="atp.E012",
        )
    for pattern, hint in given.unmatched(paths()):
        yield checks.Warning(
            f"{given.told}['types'][{pattern!r}] is the path of no task.{hint}",
            hint="The modules of tasks are those called tasks.py in installed apps, and those "
            "that OPTIONS['modules'] names.",
            id="atp.W013",
        )


# The tasks that this process declares.

NOT_INSTALLED = "ATPBackend needs ATP's tables: add 'atp' to INSTALLED_APPS."


class Declared(NamedTuple):
    """A task as it was declared, and the Type that runs it."""

    task: Any
    task_type: TaskType


# The key is the identifier of the Type, which is the path of the task's function.
_declared: dict[str, Declared] = {}
# The current identifiers, by former ones.
_current: dict[str, str] = {}


def find(identifier: str) -> Declared | None:
    """Return the task of a Type that this process declares, also by a former name, or None."""
    return _declared.get(identifier) or _declared.get(_current.get(identifier, ""))


def paths() -> list[str]:
    """Return the paths of all tasks that this process declares."""
    return list(_declared)


def add(path: str, task: Any, task_type: TaskType) -> None:
    """Keep a task, and the Type that was made of it."""
    _declared[path] = Declared(task, task_type)
    _current.update(dict.fromkeys(task_type.formerly, path))


def as_enqueued(task: Any, **facts: Any) -> Any:
    """Return a copy of a declared task with these values, for a result.

    The copy is not validated: its Instance exists, whatever the settings say today.
    """
    made = object.__new__(type(task))
    for each in fields(task):
        value = facts.get(each.name, getattr(task, each.name))
        if each.name in _MAY_BE_UNSET and not value:
            value = UNSET
        object.__setattr__(made, each.name, value)
    return made


_MAY_BE_UNSET = ("identifier", "start_before", "created_by")


# ATPTask: a task with the parameters of a Type, and the options of an enqueue.


class Unset(Enum):
    """The value of a parameter that is not given, since None has a meaning of its own."""

    UNSET = "not given"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET

# What a task of django.tasks has already, with its name there: queue_name is the collection.
STANDARD = {"priority": "priority", "collection": "queue_name", "run_after": "run_after"}
# The parameters of a Type that a task may be declared with.
PARAMETERS = tuple(name for name in KNOWN if name not in STANDARD)
# The options of an enqueue that using() takes beside its own.
OPTIONS = tuple(
    name for name in OptionValues.__annotations__ if name not in (*STANDARD, *PARAMETERS)
)

# Django 6.0 has these defaults in its decorator only.
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
    """A task that ATP runs.

    ``@task(timeout=60, max_retries=3)`` takes the parameters of a Type; :meth:`using` takes the
    options of an enqueue. A value that is not given is UNSET.
    """

    def using(self, **changes: Any) -> Any:
        """Return this task with other values.

        Their names are those of ``django.tasks``, and ``identifier``, ``existing``, ``unique``,
        ``start_before`` and ``created_by`` of :class:`~atp.options.Options`. Raises
        TypeError for other names.
        """
        own = {name: changes.pop(name) for name in OPTIONS if name in changes}
        for name in changes:
            if name not in _USING:
                raise TypeError(f"using() has no argument {name!r}.{_instead(name)}")
        task = Task.using(self, **changes)
        return replace(task, **own) if own else task

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a Type that were given."""
        return {name: v for name in PARAMETERS if (v := getattr(self, name)) is not UNSET}

    @property
    def options(self) -> dict[str, Any]:
        """The options of an enqueue that were given."""
        return {name: v for name in OPTIONS if (v := getattr(self, name)) is not UNSET}


_USING = ("priority", "queue_name", "run_after", "backend")


def _instead(name: str) -> str:
    if name in PARAMETERS:
        return f" It is a parameter of the Type: say it in @task({name}=…)."
    if name in STANDARD:
        return f" It is called {STANDARD[name]!r} here."
    return did_you_mean(name, (*_USING, *OPTIONS))


# ``OPTIONS`` of an entry in the setting TASKS: their values and their problems.

KEYS = (*PARAMETERS, "types", "modules")
# Parameters that say something only beside another one.
_BESIDE = {"burst": "rate", "downstream_errors": "downstream"}


class BackendOptions:
    """The parameters for tasks that state none: for all tasks, and by patterns of their paths.

    ``told`` names the setting in messages. ``problems`` are sentences; wrong values are left out.
    """

    def __init__(self, told: str, given: Any) -> None:
        self.told = told
        self.problems: list[str] = []
        self.modules: list[str] = []
        self.patterns: dict[str, dict[str, Any]] = {}
        given = self._mapping(told, given)
        for name in given:
            if name not in KEYS:
                self.problems.append(f"{told} has no key {name!r}.{_options_instead(name, KEYS)}")
        self.defaults = self._checked(told, {n: v for n, v in given.items() if n in PARAMETERS})
        where = f"{told}['types']"
        for pattern, values in self._mapping(where, given.get("types", {})).items():
            self._add(f"{where}[{pattern!r}]", pattern, values)
        self._read_modules(given.get("modules", ()))

    def of(self, path: str) -> dict[str, Any]:
        """Return the parameters for the task with this path; a later pattern overrides others."""
        found = dict(self.defaults)
        for pattern, values in self.patterns.items():
            if fnmatchcase(path, pattern):
                found |= values
        return found

    def unmatched(self, paths: list[str]) -> Iterator[tuple[str, str]]:
        """Yield each pattern that matches none of the paths, with a hint at the closest path."""
        for pattern in self.patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                stem = pattern.rstrip("*").rstrip(".")
                modules = {path.rpartition(".")[0] for path in paths}
                yield pattern, did_you_mean(stem, [*modules, *paths])

    def _add(self, told: str, pattern: Any, values: Any) -> None:
        if not isinstance(pattern, str) or not pattern:
            self.problems.append(f"{told}: a pattern is text, as in 'wagtail.tasks.*'.")
            return
        known = {}
        for name, value in self._mapping(told, values).items():
            if name in PARAMETERS:
                known[name] = value
            else:
                self.problems.append(
                    f"{told} has no key {name!r}.{_options_instead(name, PARAMETERS)}"
                )
        # A task that matches this pattern may match each earlier one too.
        general = dict(self.defaults)
        for earlier in self.patterns.values():
            general |= earlier
        self.patterns[pattern] = self._checked(told, known, general)

    def _checked(
        self, told: str, values: dict[str, Any], general: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the valid values, and add the problems with the others to ``problems``.

        ``general`` are the values that hold where ``values`` say nothing else.
        """
        right = {}
        for name, value in values.items():
            if self._is_right(told, {name: value}, {**general, **values}):
                right[name] = value
        return right if self._is_right(told, right, {**general, **right}) else {}

    def _is_right(self, told: str, values: dict[str, Any], all: Mapping[str, Any]) -> bool:
        beside = {_BESIDE[name] for name in values if name in _BESIDE}
        try:
            check_values(told, {name: all[name] for name in beside if name in all} | values)
        except ATPError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return False
        return True

    def _read_modules(self, given: Any) -> None:
        told = f"{self.told}['modules']"
        if not isinstance(given, (list, tuple)):
            self.problems.append(f"{told} must be a list of names of modules, not {given!r}.")
            return
        for name in given:
            if not _is_module(name):
                self.problems.append(f"{told}: there is no module {name!r}.")
            else:
                self.modules.append(name)

    def _mapping(self, told: str, given: Any) -> Mapping[str, Any]:
        if isinstance(given, Mapping):
            return given
        self.problems.append(f"{told} must be a dictionary, not {given!r}.")
        return {}


def queue_problems(told: str, queues: Any) -> Iterator[str]:
    """Yield the problems with names of queues: each has to be valid as a collection."""
    for name in sorted(queues, key=str):
        try:
            check_text("a queue", name, empty=False)
        except InvalidOption as error:
            yield f"{told}: {error}"


def _is_module(name: Any) -> bool:
    try:
        return isinstance(name, str) and find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _options_instead(name: Any, known: tuple[str, ...]) -> str:
    if name in STANDARD:
        return f" The task says that itself: {STANDARD[name]}."
    return did_you_mean(name, known)
