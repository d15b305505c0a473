"""ATPBackend: the backend by which ``django.tasks`` uses ATP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import checks, declaring, frameworks
from .frameworks import BaseTaskBackend, normalize_json
from .options import BackendOptions
from .task import ATPTask

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from ..authoring.task_type import TaskType


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
        declaring.options_of(task)
        return declaring.declare(task, self.given)

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
        options = declaring.options_of(task)
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
        return checks.of_installation(self.alias)

    def _refuse_wrong_options(self) -> None:
        if self.given.problems:
            raise frameworks.error("InvalidTaskBackend")(self.given.problems[0])


def _with(task_type: TaskType, options: Any) -> TaskType:
    # ``exact`` is a parameter of the Type, which the options of a task do not have.
    return replace(task_type, options=replace(options, exact=task_type.options.exact))
