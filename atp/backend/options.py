"""``OPTIONS`` of an entry in the setting TASKS: their values and their problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from ..authoring.parameters.checks import check_values
from ..exceptions import ATPError, InvalidOption
from ..words.hints import did_you_mean
from ..words.options import check_text
from .task import PARAMETERS, STANDARD

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
                self.problems.append(f"{told} has no key {name!r}.{_instead(name, KEYS)}")
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
                self.problems.append(f"{told} has no key {name!r}.{_instead(name, PARAMETERS)}")
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


def _instead(name: Any, known: tuple[str, ...]) -> str:
    if name in STANDARD:
        return f" The task says that itself: {STANDARD[name]}."
    return did_you_mean(name, known)
