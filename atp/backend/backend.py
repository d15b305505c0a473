"""ATPBackend: a task becomes a Type, an enqueue an Instance."""

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


# ATPBackend: the backend by which ``django.tasks`` uses ATP.


class ATPBackend(BaseTaskBackend):
    """Lets atpd run tasks of ``django.tasks``: a function is a Type, an enqueue an Instance.

    ``OPTIONS`` has the parameters of Types for tasks that state none. Its key ``types`` has
    parameters by patterns of the tasks' paths. Its key ``modules`` names modules with tasks:
    daemons import these beside ``tasks.py`` of installed apps.
    """

    task_class = ATPTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.given = BackendOptions(f"TASKS[{alias!r}]['OPTIONS']", self.options)

    def validate_task(self, task: Any) -> None:
        """Check a task, and declare its Type. Raises InvalidTask."""
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
        return declare(task, self.given)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a call in the caller's transaction, and return its result: READY if it is new.

        Raises InvalidTask, TooLarge and DuplicateIdentifier. Raises a TypeError for arguments
        that JSON has no types for, or that do not fit the function (InvalidInputs).
        """
        # Imported here: models cannot be imported before the apps are loaded.
        from .. import queue
        from . import results

        self._refuse_wrong_options()
        task_type = self._declare(task)
        options = options_of(task)
        args, kwargs = normalize_json(list(args)), normalize_json(kwargs)
        made = queue.enqueue(_with(task_type, options), *args, **kwargs)
        if not made.is_new:
            return results.result_of(made, self.alias)
        result = results.ready(task, made, args, kwargs)
        for signal in frameworks.signals("task_enqueued"):
            signal.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: Any) -> Any:
        """Return the result with this id, from any process. Raises TaskResultDoesNotExist.

        The result is read from the queue; its task is the one that this process declares.
        """
        from . import results

        return results.find(result_id, self.alias)

    def check(self, **kwargs: Any) -> Iterator[CheckMessage]:
        """Yield an error if ATP is not installed; ATP's own checks look at OPTIONS and QUEUES."""
        return declared.of_installation(self.alias)

    def _refuse_wrong_options(self) -> None:
        if self.given.problems:
            raise frameworks.error("InvalidTaskBackend")(self.given.problems[0])


def _with(task_type: TaskType, options: Any) -> TaskType:
    # ``exact`` is a parameter of the Type, which the options of a task do not have.
    return replace(task_type, options=replace(options, exact=task_type.options.exact))


# Declaring tasks: each becomes a Type, whose identifier is the path of the task's function.


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


# Finding tasks that are not in ``tasks.py`` of an installed app: ``OPTIONS["modules"]``.


def import_modules(entries: dict[str, Any]) -> None:
    """Import the modules that ``OPTIONS["modules"]`` names in each entry of TASKS for ATPBackend.

    A module that does not exist is skipped: the system check reports it.
    """
    from .task import BackendOptions

    for alias, entry in entries.items():
        if issubclass(import_string(entry["BACKEND"]), ATPBackend):
            for module in BackendOptions(alias, entry["OPTIONS"]).modules:
                import_module(module)
