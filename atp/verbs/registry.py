"""The registry: the Types that this process declares, by identifier.

A daemon runs only handlers from this registry; nothing in the database names code to run (G14).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.signals import setting_changed

from ..exceptions import InvalidType, UnknownType, UnregisteredHandler
from ..words.hints import did_you_mean

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType

# The Types of ATP itself, each with the module that declares it: imported on first use.
DELETES = "atp.delete"
OWN = dict.fromkeys(("atp.redrive", "atp.cancel", DELETES), "atp.deadletters.task")
# Only verbs and hooks enqueue these: whoever may enqueue may not also delete, or tell a target.
_INTERNAL = {*OWN, "atp.webhook"}
# The pattern of identifiers of Types.
IDENTIFIER = r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,199}"


# What daemons import, as a sentence about a Type that is declared elsewhere.
IMPORTED = (
    "Daemons import the modules called tasks.py of installed apps, those that OPTIONS['modules'] "
    "in the setting TASKS names, and what these import"
)


class Registry:
    """The Types that this process has handlers for, by identifier."""

    def __init__(self) -> None:
        self._types: dict[str, TaskType] = {}
        # The current identifier of a Type, by each of its former identifiers.
        self._former: dict[str, str] = {}
        # By identifier, the execution of the module that declared the Type: see _run_of().
        self._runs: dict[str, object] = {}
        # The Types that were declared after Django had started.
        self._late: set[str] = set()
        self._readers: list[Callable[[object], TaskType | None]] = []
        # By identifier, whether FINISHED Instances are kept: a cache, read for each attempt.
        self._kept: dict[str, bool] = {}
        setting_changed.connect(self._forget_kept)

    def _forget_kept(self, **kwargs: Any) -> None:
        self._kept.clear()

    def __iter__(self) -> Iterator[TaskType]:
        return iter(list(self._types.values()))

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._types or identifier in self._former or identifier in OWN

    def is_former(self, identifier: str) -> bool:
        """Whether this is a former identifier of a Type."""
        return identifier in self._former

    def names(self) -> list[str]:
        """Return the current and the former identifiers of all Types."""
        return [*self._types, *self._former]

    def _find(self, identifier: str) -> TaskType | None:
        return self._types.get(self._former.get(identifier, identifier))

    def add(self, task_type: TaskType) -> None:
        """Add a Type. Raises InvalidType if another Type has one of its names, current or former.

        A module that is imported again declares its Types again, without an error.
        """
        other = self._types.get(task_type.identifier)
        if other is not None and other.handler_path != task_type.handler_path:
            raise InvalidType(
                f"Type {task_type.identifier!r} is declared twice: by {other.handler_path} "
                f"and by {task_type.handler_path}."
            )
        run = _run_of(task_type.handler)
        if other is not None and run is not None and run is self._runs.get(task_type.identifier):
            _refuse_another(task_type, other)
        self._check_names(task_type)
        is_late = apps.ready and (other is None or task_type.identifier in self._late)
        self.remove(task_type.identifier)
        self._types[task_type.identifier] = task_type
        self._former |= dict.fromkeys(task_type.formerly, task_type.identifier)
        self._runs[task_type.identifier] = run
        if is_late:
            self._late.add(task_type.identifier)

    def _check_names(self, task_type: TaskType) -> None:
        """Raise InvalidType if another Type has, or formerly had, a name of this Type."""
        for name in task_type.names:
            owner = self._former.get(name, name)
            if owner in self._types and owner != task_type.identifier:
                what = "is declared" if owner == name else f"is what {owner!r} was called formerly"
                told = f"task_type({task_type.identifier!r})"
                where = "" if name == task_type.identifier else f": formerly={name!r}"
                raise InvalidType(f"{told}{where}: a Type {name!r} {what}, too.")

    def remove(self, identifier: str) -> None:
        """Remove a Type; no error if there is none."""
        self._types.pop(identifier, None)
        self._late.discard(identifier)
        self._former = {old: new for old, new in self._former.items() if new != identifier}
        self._kept.clear()

    def is_reached(self, identifier: str) -> bool:
        """Whether daemons with this code declare the Type, as they import no more than Django does.

        What is imported later, as by views, is declared in this process alone.
        """
        name = self._former.get(identifier, identifier)
        return identifier in _INTERNAL or (name in self._types and name not in self._late)

    def unreached(self) -> list[TaskType]:
        """Return the Types that this process declares, and no daemon with this code does."""
        return [each for each in self if not self.is_reached(each.identifier)]

    def get(self, identifier: str) -> TaskType:
        """Return the Type with this current or former identifier.

        Raises UnknownType, which suggests the closest identifier.
        """
        if identifier in OWN and identifier not in self._types:
            self.declare_own()
        found = self._find(identifier)
        if found is None:
            hint = did_you_mean(identifier, self._types)
            raise UnknownType(f"No Type {identifier!r} is declared.{hint}")
        return found

    def add_reader(self, reader: Callable[[object], TaskType | None]) -> None:
        """Add a function that returns the Type of other objects, as tasks of ``django.tasks``.

        For objects that it does not know it returns None.
        """
        if reader not in self._readers:
            self._readers.append(reader)

    def read(self, given: object) -> TaskType | None:
        """Return a Type, or the Type of an object that a reader knows; None for all else."""
        # The row of a registered Type has the path of its handler as text.
        if callable(getattr(given, "handler", None)):
            return given  # type: ignore[return-value]
        found = (reader(given) for reader in self._readers)
        return next((each for each in found if each is not None), None)

    def declare_own(self) -> None:
        """Declare the Types of ATP itself, which every daemon serves."""
        for module in set(OWN.values()):
            import_module(module)

    def is_transactional(self, identifier: str) -> bool:
        """Whether the writes of the Type's handler are committed together with its end."""
        found = self._find(identifier)
        return found is not None and bool(found.transactional)

    def is_stoppable(self, identifier: str) -> bool:
        """Whether an attempt of the Type may be paused at any point of its handler."""
        found = self._find(identifier)
        return found is not None and found.stoppable

    def backoff_steps(self, identifier: str) -> tuple[timedelta, ...]:
        """Return the delays before the Type's retries; empty if the delay doubles each time."""
        found = self._find(identifier)
        return () if found is None else found.backoff_steps

    def keeps(self, identifier: str) -> bool:
        """Whether FINISHED Instances of the Type are kept at all."""
        kept = self._kept.get(identifier)
        if kept is None:
            declared = self._find(identifier)
            kept = declared is None or declared.registration().retention != timedelta(0)
            self._kept[identifier] = kept
        return kept

    def downstream(self, identifier: str) -> str:
        """Return the name of the downstream that the Type calls; empty if it names none."""
        found = self._find(identifier)
        return "" if found is None else found.downstream

    def handler_of(self, identifier: str) -> TaskType:
        """Return the declared Type, with its handler. Raises UnregisteredHandler."""
        found = self._find(identifier)
        if found is None:
            raise UnregisteredHandler(f"This process has no handler for Type {identifier!r}.")
        return found


registry = Registry()


def _run_of(handler: Callable[..., Any]) -> object:
    """Return an object that identifies one execution of the handler's module; None in a shell."""
    return getattr(inspect.unwrap(handler), "__globals__", {}).get("__spec__")


def _refuse_another(task_type: TaskType, other: TaskType) -> None:
    """Raise InvalidType if one module defines two functions of the same name as this Type."""
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
    """Whether the Type belongs to ATP, which alone enqueues Instances of it."""
    return identifier in _INTERNAL


def is_enqueueable(identifier: str) -> bool:
    """Whether this process may enqueue Instances of the Type: it declares it, and ATP does not."""
    return identifier in registry and not is_internal(identifier)


def is_identifier(text: object) -> bool:
    """Whether the text is a valid identifier of a Type."""
    return isinstance(text, str) and re.fullmatch(IDENTIFIER, text) is not None
