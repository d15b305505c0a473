"""The tasks that this process declares."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from .task import UNSET

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


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
