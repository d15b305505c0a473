"""Imports ``django.tasks`` from Django 6 or its backport, and converts values for its results."""

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

# Two packages define the interface: ``django.tasks`` in Django 6, and its backport.
#
# A process may use both, for example if Wagtail uses the backport on Django 6. Both read the
# setting TASKS. The classes here are Django's own if Django has them, otherwise the backport's.
# Exceptions and signals are those of both packages.

OWN, BACKPORT = "django.tasks", "django_tasks"
PACKAGE = OWN if django.VERSION >= (6,) else BACKPORT


def _import_part(name: str) -> Any:
    try:
        return import_module(f"{PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if error.name != BACKPORT:
            raise
        raise ImportError(
            "atp.backend needs django.tasks, which is part of Django 6 and later. For Django "
            f"{django.get_version()} install its backport, the package django-tasks."
        ) from None


_base = _import_part("base")
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
DEFAULT_QUEUE_NAME: str = _base.DEFAULT_TASK_QUEUE_NAME
BaseTaskBackend: Any = _import_part("backends.base").BaseTaskBackend
normalize_json: Any = (
    _import_part("utils") if PACKAGE == BACKPORT else import_module("django.utils.json")
).normalize_json


def error(name: str) -> Any:
    """Return the exception class with this name from Django or its backport.

    If both packages are loaded, return a subclass of both classes. The backport adds "Error" to
    some of the names.
    """
    modules = _import_loaded("exceptions")
    classes = [getattr(each, name, None) or getattr(each, f"{name}Error") for each in modules]
    return _combine_classes(tuple(classes))


@cache
def _combine_classes(classes: tuple[type[Exception], ...]) -> type[Exception]:
    first = classes[0]
    if len(classes) == 1:
        return first
    return type(first.__name__, classes, {"__doc__": first.__doc__, "__module__": __name__})


def signals(name: str) -> list[Any]:
    """Return the signals with this name, one from each package that is loaded."""
    return [getattr(module, name) for module in _import_loaded("signals")]


def _import_loaded(name: str) -> list[ModuleType]:
    """Import this submodule of ``django.tasks`` from each package that is loaded."""
    modules = [_import_part(name)]
    # Importing the backport changes classes of Django, so leave the first import to the project.
    if PACKAGE == OWN and BACKPORT in sys.modules:
        modules.append(import_module(f"{BACKPORT}.{name}"))
    return modules


# Values in the form that ``django.tasks`` requires: inputs of a result, and return values.


def inputs_of_result(value: Any) -> Any:
    """Return inputs for a TaskResult, with text in place of values that JSON cannot represent.

    The shell, the API and schedules can pass such values to a task, for example the time of a
    schedule's slot. The output of another node in a graph becomes None, because only an attempt
    knows that output.
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
            return {_text_key(key): inputs_of_result(each) for key, each in value.items()}
        case Sequence():
            return [inputs_of_result(each) for each in value]
        case _:
            return str(value)


def with_text_keys(value: Any) -> Any:
    """Return a normalized value whose mapping keys are strings, as in JSON. 7 becomes "7"."""
    if isinstance(value, Mapping):
        return {_text_key(key): with_text_keys(each) for key, each in value.items()}
    return [with_text_keys(each) for each in value] if isinstance(value, list) else value


def _text_key(key: Any) -> Any:
    return json.dumps(key) if key is None or isinstance(key, int | float) else key
