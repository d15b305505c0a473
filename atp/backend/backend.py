"""ATPBackend stores each task of ``django.tasks`` as a Type, and each enqueue as an Instance."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..exceptions import ATPError, InvalidType
from ..operations.registry import registry
from ..options import Options
from . import frameworks
from . import task as declared
from .frameworks import DEFAULT_QUEUE_NAME, BaseTaskBackend, error, normalize_json
from .task import ATPTask, BackendOptions

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from ..authoring.task_type import TaskType
    from .running import TaskRun


class ATPBackend(BaseTaskBackend):
    """Lets atpd run tasks of ``django.tasks``. A function is a Type, and each enqueue an Instance.

    ``OPTIONS`` in the setting TASKS holds default Type parameters, such as ``timeout``, for all
    tasks. Its key ``types`` holds parameters for the tasks whose dotted paths match a pattern. Its
    key ``modules`` lists modules that contain tasks. Daemons import them in addition to the
    ``tasks.py`` of each installed app.
    """

    task_class = ATPTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.checked_options = BackendOptions(f"TASKS[{alias!r}]['OPTIONS']", self.options)

    def validate_task(self, task: Any) -> None:
        """Validate a task and declare its Type. Raises InvalidTask."""
        self._declare(task)

    def _declare(self, task: Any) -> TaskType:
        invalid = frameworks.error("InvalidTask")
        try:
            super().validate_task(task)
        except frameworks.error("TaskException") as problem:
            if isinstance(problem, invalid):
                raise
            raise invalid(*problem.args) from None
        options_of(task)
        return declare(task, self.checked_options)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a call in the caller's transaction, and return its TaskResult.

        The result of a new Instance is READY. Raises InvalidTask, TooLarge and
        DuplicateIdentifier. Raises a TypeError if JSON cannot represent the arguments, and its
        subclass InvalidInputs if they do not match the function's signature.
        """
        # Imported here because models cannot be imported before the apps are loaded.
        from .. import queue
        from . import results

        self._refuse_wrong_options()
        task_type = self._declare(task)
        options = options_of(task)
        args, kwargs = normalize_json(list(args)), normalize_json(kwargs)
        instance = queue.enqueue(_with_options(task_type, options), *args, **kwargs)
        if not instance.is_new:
            return results.result_of(instance, self.alias)
        result = results.make_ready_result(task, instance, args, kwargs)
        for signal in frameworks.signals("task_enqueued"):
            signal.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: Any) -> Any:
        """Read the TaskResult with this id from the queue. Raises TaskResultDoesNotExist.

        The ``task`` of the result is the task that this process declares for the Type.
        """
        from . import results

        return results.find(result_id, self.alias)

    def check(self, **kwargs: Any) -> Iterator[CheckMessage]:
        """Yield an error if ATP is not installed. ATP's own checks examine OPTIONS and QUEUES."""
        return declared.check_installation(self.alias)

    def _refuse_wrong_options(self) -> None:
        if self.checked_options.problems:
            raise frameworks.error("InvalidTaskBackend")(self.checked_options.problems[0])


def _with_options(task_type: TaskType, options: Any) -> TaskType:
    # ``exact`` comes from the Type, because the options of a task cannot contain it.
    return replace(task_type, options=replace(options, exact=task_type.options.exact))


# Declaring tasks: each becomes a Type; its identifier is the path of the task's function.


def declare(task: Any, options: BackendOptions) -> TaskType:
    """Return the Type of a task. Declare the Type first if the task's function has none yet.

    Raises InvalidTask from ``django.tasks``, and ImproperlyConfigured if ATP is not installed.
    """
    path = task.module_path
    known = declared.find(path)
    parameters = task.parameters if isinstance(task, ATPTask) else {}
    if known is not None and known.task.func is task.func:
        before = known.task.parameters if isinstance(known.task, ATPTask) else {}
        if parameters != before:
            raise error("InvalidTask")(
                f"{path} is declared twice, with different Type parameters. First: "
                f"{_describe_parameters(before)}. Now: {_describe_parameters(parameters)}."
            )
        return known.task_type
    if not apps.is_installed("atp"):
        raise ImproperlyConfigured(declared.NOT_INSTALLED)
    task_type = _make_type(task, path, options.of(path) | parameters)
    declared.add(path, task, task_type)
    return task_type


def type_of(task: object) -> TaskType | None:
    """Return the Type of a declared task, with the task's options, or None for other objects."""
    path = getattr(task, "module_path", None)
    known = declared.find(path) if isinstance(path, str) else None
    return None if known is None else _with_options(known.task_type, options_of(task))


registry.add_reader(type_of)


def _make_type(task: Any, path: str, parameters: dict[str, Any]) -> TaskType:
    # Imported here because models cannot be imported before the apps are loaded.
    from ..authoring.task_type import task_type
    from .running import TaskRun

    try:
        return task_type(path, **parameters)(_make_handler(task, TaskRun))
    except InvalidType as problem:
        raise error("InvalidTask")(str(problem)) from problem


def _make_handler(task: Any, run_class: type[TaskRun]) -> Callable[..., Any]:
    """Return a handler that takes ATP's context first, and then the task function's parameters."""
    function = task.func

    if inspect.iscoroutinefunction(function):

        @wraps(function, updated=())
        async def handler(context: Any, /, *args: Any, **kwargs: Any) -> Any:
            run = run_class(context, args, kwargs)
            positional = run.arguments(args, takes_context=task.takes_context)
            if task.takes_context:
                # Attributes of the context cannot be awaited, so read them now.
                await sync_to_async(run.look)()
            return run.set_return_value(await function(*positional, **kwargs))

    else:

        @wraps(function, updated=())
        def handler(context: Any, /, *args: Any, **kwargs: Any) -> Any:
            run = run_class(context, args, kwargs)
            positional = run.arguments(args, takes_context=task.takes_context)
            return run.set_return_value(function(*positional, **kwargs))

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[int(task.takes_context) :]
    first = inspect.Parameter("_atp_context", inspect.Parameter.POSITIONAL_ONLY)
    handler.__signature__ = signature.replace(parameters=[first, *parameters])  # type: ignore[attr-defined]
    # The results of django.tasks distinguish arguments by position from those by name.
    handler.as_called = True  # type: ignore[attr-defined]
    return handler


def options_of(task: Any) -> Options:
    """Return the Options with which ATP enqueues a task. Raises InvalidTask."""
    name = task.queue_name
    options = task.options if isinstance(task, ATPTask) else {}
    try:
        return Options(
            priority=int(task.priority),
            collection="" if name == DEFAULT_QUEUE_NAME else name,
            run_after=task.run_after,
            **options,
        )
    except ATPError as problem:
        raise error("InvalidTask")(str(problem)) from problem


def _describe_parameters(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "none"


# Finding tasks outside ``tasks.py`` of installed apps: ``OPTIONS["modules"]``.


def import_modules(entries: dict[str, Any]) -> None:
    """Import the modules in ``OPTIONS["modules"]`` of each TASKS entry that uses ATPBackend.

    ``entries`` is the setting TASKS. A module that does not exist is skipped here, because a system
    check reports it.
    """
    for alias, entry in entries.items():
        if issubclass(import_string(entry["BACKEND"]), ATPBackend):
            for module in BackendOptions(alias, entry["OPTIONS"]).modules:
                import_module(module)
