"""The packages that define the interface: ``django.tasks`` of Django 6, and its backport.

One process may use both, for example if Wagtail uses the backport on Django 6. Both read the
setting TASKS. The classes here are Django's own if Django has them, else the backport's.
Exceptions and signals are those of both.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import django

OWN, BACKPORT = "django.tasks", "django_tasks"
PACKAGE = OWN if django.VERSION >= (6,) else BACKPORT


def _module(name: str) -> Any:
    try:
        return import_module(f"{PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if error.name != BACKPORT:
            raise
        raise ImportError(
            "atp.backend takes django.tasks, which Django has from version 6 on. For Django "
            f"{django.get_version()} install its backport, the package django-tasks."
        ) from None


_base = _module("base")
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
DEFAULT_QUEUE_NAME: str = _base.DEFAULT_TASK_QUEUE_NAME
BaseTaskBackend: Any = _module("backends.base").BaseTaskBackend
normalize_json: Any = (
    _module("utils") if PACKAGE == BACKPORT else import_module("django.utils.json")
).normalize_json


def error(name: str) -> Any:
    """Return Django's exception of this name; if the backport is loaded, a subclass of both.

    The backport adds "Error" to some of the names.
    """
    classes = []
    for module in _loaded("exceptions"):
        found = getattr(module, name, None) or getattr(module, f"{name}Error")
        classes.append(found)
    return _joined(tuple(classes))


@cache
def _joined(classes: tuple[type[Exception], ...]) -> type[Exception]:
    first = classes[0]
    if len(classes) == 1:
        return first
    return type(first.__name__, classes, {"__doc__": first.__doc__, "__module__": __name__})


def signals(name: str) -> list[Any]:
    """Return the signals of this name, one of each package that is loaded."""
    return [getattr(module, name) for module in _loaded("signals")]


def _loaded(name: str) -> list[ModuleType]:
    modules = [_module(name)]
    # Importing the backport changes classes of Django, so only the project may do it first.
    if PACKAGE == OWN and BACKPORT in sys.modules:
        modules.append(import_module(f"{BACKPORT}.{name}"))
    return modules
