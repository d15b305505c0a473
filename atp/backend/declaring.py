"""Declaring tasks: each becomes a Type, whose identifier is the path of the task's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from ..exceptions import ATPError, InvalidType
from ..verbs.registry import registry
from ..words.options import Options
from . import declared
from .frameworks import DEFAULT_QUEUE_NAME, error
from .task import ATPTask

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType
    from .options import BackendOptions


def declare(task: Any, options: BackendOptions) -> TaskType:
    """Return the Type of a task; declare the Type if the task's function has none yet.

    Raises the InvalidTask of ``django.tasks``, or ImproperlyConfigured.
    """
    path = task.module_path
    found = declared.find(path)
    own = task.parameters if isinstance(task, ATPTask) else {}
    if found is not None and found.task.func is task.func:
        said = found.task.parameters if isinstance(found.task, ATPTask) else {}
        if own != said:
            raise error("InvalidTask")(
                f"{path} is declared already, with other parameters of its Type: {_words(said)} "
                f"and now {_words(own)}."
            )
        return found.task_type
    if not apps.is_installed("atp"):
        raise ImproperlyConfigured(declared.NOT_INSTALLED)
    made = _type(task, path, options.of(path) | own)
    declared.add(path, task, made)
    return made


def type_of(task: object) -> TaskType | None:
    """Return the Type of a declared task, with the options of the task; None for other objects."""
    path = getattr(task, "module_path", None)
    found = declared.find(path) if isinstance(path, str) else None
    if found is None:
        return None
    options = replace(options_of(task), exact=found.task_type.options.exact)
    return replace(found.task_type, options=options)


registry.add_reader(type_of)


def _type(task: Any, path: str, parameters: dict[str, Any]) -> TaskType:
    # Imported here: unlike this module, models cannot be imported before the apps are loaded.
    from ..authoring.task_type import task_type
    from .running import Attempt

    try:
        return task_type(path, **parameters)(_handler(task, Attempt))
    except InvalidType as problem:
        raise error("InvalidTask")(str(problem)) from problem


def _handler(task: Any, attempt_of: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that calls a task's function: a context, and then the same parameters."""
    function = task.func

    if inspect.iscoroutinefunction(function):

        @wraps(function, updated=())
        async def handler(context: Any, /, *args: Any, **kwargs: Any) -> Any:
            attempt = attempt_of(context, args, kwargs)
            given = attempt.arguments(args, takes_context=task.takes_context)
            if task.takes_context:
                # Attributes of the context cannot be awaited.
                await sync_to_async(attempt.look)()
            return attempt.returned(await function(*given, **kwargs))

    else:

        @wraps(function, updated=())
        def handler(context: Any, /, *args: Any, **kwargs: Any) -> Any:
            attempt = attempt_of(context, args, kwargs)
            given = attempt.arguments(args, takes_context=task.takes_context)
            return attempt.returned(function(*given, **kwargs))

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[int(task.takes_context) :]
    first = inspect.Parameter("_atp_context", inspect.Parameter.POSITIONAL_ONLY)
    handler.__signature__ = signature.replace(parameters=[first, *parameters])  # type: ignore[attr-defined]
    # The results of django.tasks keep arguments by position apart from those by name.
    handler.as_called = True  # type: ignore[attr-defined]
    return handler


def options_of(task: Any) -> Options:
    """Return the options with which a task is enqueued. Raises InvalidTask."""
    name = task.queue_name
    given = task.options if isinstance(task, ATPTask) else {}
    try:
        return Options(
            priority=int(task.priority),
            collection="" if name == DEFAULT_QUEUE_NAME else name,
            run_after=task.run_after,
            **given,
        )
    except ATPError as problem:
        raise error("InvalidTask")(str(problem)) from problem


def _words(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "none"
