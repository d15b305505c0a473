"""`django.tasks` of Django 6 and its backport; values as they hold them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, time
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import django

from ..graphs.placeholders import Result

# The packages that define the interface: ``django.tasks`` of Django 6, and its backport.
#
# One process may use both, for example if Wagtail uses the backport on Django 6. Both read the
# setting TASKS. The classes here are Django's own if Django has them, else the backport's.
# Exceptions and signals are those of both.

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


# Values as ``django.tasks`` holds them: inputs of a result, and the keys of a return value.


def inputs_of_result(value: Any) -> Any:
    """Return inputs as a TaskResult may hold them: values that JSON lacks are text there.

    The shell, the API and schedules can give a task such values, as the time of a slot. For the
    output of another node of a graph there is None: only the attempt knows it.
    """
    match value:
        case Result():
            return None
        case str() | int() | float() | None:
            return value
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {_key(key): inputs_of_result(each) for key, each in value.items()}
        case Sequence():
            return [inputs_of_result(each) for each in value]
        case _:
            return str(value)


def with_text_keys(value: Any) -> Any:
    """Return a normalized return value with the keys that it has in JSON: 7 is "7" there."""
    if isinstance(value, Mapping):
        return {_key(key): with_text_keys(each) for key, each in value.items()}
    return [with_text_keys(each) for each in value] if isinstance(value, list) else value


def _key(key: Any) -> Any:
    return json.dumps(key) if key is None or isinstance(key, int | float) else key
